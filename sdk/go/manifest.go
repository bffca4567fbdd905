package nelkap

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Version is the SDK's.
const Version = "0.1.0"

// sdkHeader is what every answer says in Nelkap-SDK.
const sdkHeader = "go/" + Version

// manifest is what the app says of itself; hash tells the server of a deploy (D1).
type manifest struct {
	text []byte
	hash string
}

// manifestWorkflow is one workflow in the manifest. What the user did not give is absent.
type manifestWorkflow struct {
	Name      string    `json:"name"`
	Triggers  []trigger `json:"triggers,omitempty"`
	CancelOn  []trigger `json:"cancelOn,omitempty"`
	Retries   *int      `json:"retries,omitempty"`
	TimeoutMs int64     `json:"timeoutMs,omitempty"`
	LeaseMs   int64     `json:"leaseMs,omitempty"`
	OnFailure bool      `json:"onFailure,omitempty"`
	OnCancel  bool      `json:"onCancel,omitempty"`
}

// newManifest describes workflows, in the byte order of their names.
func newManifest(app string, workflows map[string]*definition) manifest {
	list := make([]manifestWorkflow, 0, len(workflows))
	for _, d := range workflows {
		list = append(list, manifestWorkflow{
			d.name, d.triggers, d.cancelOn, d.retries, d.timeout.Milliseconds(), d.lease.Milliseconds(),
			d.failed != nil, d.cancelled != nil,
		})
	}
	slices.SortFunc(list, func(a, b manifestWorkflow) int { return cmp.Compare(a.Name, b.Name) })
	text, err := value.Encode("workflows", &list)
	if err != nil {
		panic("nelkap: the manifest can't be encoded: " + err.Error()) // names were checked when they were given
	}
	sum := sha256.Sum256(text)
	m := manifest{hash: hex.EncodeToString(sum[:])}
	m.text = append(wire.AppendString([]byte(`{"app":`), app), `,"sdk":{"language":"go","version":"`+Version+`"},"protocol":1,"hash":"`...)
	m.text = append(append(append(m.text, m.hash...), `","workflows":`...), text...)
	m.text = append(m.text, '}')
	return m
}
