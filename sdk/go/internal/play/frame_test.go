package play

import "testing"

// The keys were made by JavaScript: "nelkap_" and the first half of the SHA-256 of JSON.stringify([root, restart, name, number]).
// Rule S8.
func TestIdempotencyKeysAreThoseOfTheTypeScriptSDK(t *testing.T) {
	for _, c := range []struct {
		root    string
		restart int
		name    string
		number  int
		want    string
	}{
		{"run_01h455vb4pex5vsknk084sn02q", 1, "refund", 2, "nelkap_cd5f2c0d27946eb7082955b5f15d59e1"},
		{"run_1", 0, "refund", 1, "nelkap_b088e75e0dc16a257984c7d7fd600786"},
		{"run_1", 0, "a<b>&c", 1, "nelkap_c02896e46f4b84ee064500bad2951efc"},
		{"run_1", 0, "\"quoted\" \\ slash / ", 1, "nelkap_af26198ac45645fa8990fd0b63926e62"},
		{"run_1", 0, "\b\f\n\r\t", 1, "nelkap_cb6d6a00fc4aed321b91a6777765ed6a"},
		{"run_1", 0, "\x00\x01\x1f\x7f", 1, "nelkap_f9e191c0f153dcb018338c60900fae33"},
		{"run_1", 0, "\u2028\u2029", 1, "nelkap_a75e9d9e6b9b9fc6019fb2267c8b3e49"},
		{"run_1", 0, "é 😀 日本", 1, "nelkap_aa9f6267e57cbfc1dc12e30d236589ca"},
		{"run_1", 0, "__proto__", 1, "nelkap_0d6c2d57ece9fb584562aab007c652b0"},
	} {
		if got := IdempotencyKey(c.root, c.restart, c.name, c.number); got != c.want {
			t.Errorf("key of %q is %s, want %s", c.name, got, c.want)
		}
	}
}
