package contact

import (
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// inTurn answers each request with the next text, after a second.
type inTurn struct{ texts []string }

func (i *inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	time.Sleep(time.Second)
	text := i.texts[0]
	i.texts = i.texts[1:]
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// One goroutine sends request after request in the same room: an outcome has nothing of those before, whether they could be read or not.
func TestAnOutcomeHasNothingOfTheRequestBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := `{"status":"later","detail":"d","ending":{"reason":"cancelled"},"items":[{"status":"saved","entry":7,"output":1}],"entries":[{"entry":7}]}`
		server := &inTurn{texts: []string{
			`{"saves":[` + full + `]}`,
			`{"saves":[` + full + `,` + full + `,` + full + `]}`,
			`{"saves":[` + full + `]}`,
			`{"saves":[` + full + `,` + full + `,7]}`, // which is decoded halfway
			`{"saves":[{},{"status":"accepted"},{}]}`,
		}}
		d := NewProcess().Destination("http://x.test", Settings{Client: &http.Client{Transport: server}, Logger: slog.New(slog.DiscardHandler)})
		var got []*wire.Outcome
		for _, n := range []int{1, 3, 1, 3, 3} { // each while the one before is under way
			for range n {
				d.Save(save("c", 1), "", func(o *wire.Outcome) {
					if o != nil {
						o = new(*o)
					}
					got = append(got, o)
				})
			}
			time.Sleep(900 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got) != 11 || got[4] == nil || got[4].Detail != "d" || got[5] != nil || got[7] != nil {
			t.Fatalf("outcomes %+v", got)
		}
		for i, want := range []wire.Outcome{{}, {Status: "accepted"}, {}} {
			if !reflect.DeepEqual(got[8+i], &want) {
				t.Errorf("outcome %d is %+v, want %+v", i, got[8+i], want)
			}
		}
	})
}
