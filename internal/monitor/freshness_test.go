package monitor

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func TestJudge_TellsSilenceFromNotLooking(t *testing.T) {
	t.Parallel()
	const expect = 30 * time.Second
	for _, c := range []struct {
		name  string
		signs []Sign
		link  Link
		asOf  time.Time
		want  Status
	}{
		{"just heard", []Sign{{ago(time.Second), expect}}, LinkUnknown, ago(0), Fresh},
		{"at the very last moment", []Sign{{ago(expect - 1), expect}}, LinkUp, ago(0), Fresh},
		{"overdue at this instant", []Sign{{ago(expect), expect}}, LinkUnknown, ago(0), Silent},
		{"overdue", []Sign{{ago(time.Hour), expect}}, LinkUnknown, ago(time.Second), Silent},
		{"overdue and disconnected", []Sign{{ago(time.Hour), expect}}, LinkDown, ago(time.Second), Silent},
		{"overdue though connected", []Sign{{ago(time.Hour), expect}}, LinkUp, ago(time.Second), ConnectedSilent},
		{"overdue, but only since we stopped looking", []Sign{{ago(40 * time.Second), expect}}, LinkUp, ago(20 * time.Second), Unknown},
		{"overdue already when we stopped looking", []Sign{{ago(60 * time.Second), expect}}, LinkUnknown, ago(20 * time.Second), Silent},
		{"nothing was ever looked at", []Sign{{ago(time.Hour), expect}}, LinkUnknown, time.Time{}, Unknown},
		{"never heard", []Sign{{time.Time{}, expect}}, LinkUp, ago(0), NeverSeen},
		{"only a connection stream", []Sign{{ago(time.Second), 0}}, LinkUp, ago(0), NeverSeen},
		{"no stream at all", nil, LinkUnknown, ago(0), NeverSeen},
		{"the slower stream decides", []Sign{{ago(time.Second), expect}, {ago(time.Hour), expect}}, LinkUnknown, ago(0), Silent},
		{"each stream by its own expectation", []Sign{{ago(time.Second), expect}, {ago(time.Hour), 2 * time.Hour}}, LinkUnknown, ago(0), Fresh},
		{"a connection stream is not waited for", []Sign{{ago(time.Second), expect}, {ago(100 * time.Hour), 0}}, LinkUp, ago(0), Fresh},
		{"a stream known from a retained copy is not waited for", []Sign{{ago(time.Second), expect}, {time.Time{}, expect}}, LinkUp, ago(0), Fresh},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := Judge(Due(c.signs), c.link, c.asOf, noon); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestLive_NeitherFutureNorPast(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		known, received, want time.Time
	}{
		{"first", time.Time{}, ago(5), ago(5)},
		{"newer", ago(9), ago(5), ago(5)},
		{"a replay of an old report", ago(5), ago(time.Hour), ago(5)},
		{"an ingester whose clock runs ahead", ago(9), noon.Add(time.Hour), noon},
	} {
		if got := Live(c.known, c.received, noon); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestReadLink_KnowsTheWordsOfCommonDevices(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]Link{
		`{"connectionState":"ONLINE","version":"2.0"}`: LinkUp,
		`{"connectionState":"CONNECTIONBROKEN"}`:       LinkDown,
		`{"value":"Offline"}`:                          LinkDown,
		`{"online":true}`:                              LinkUp,
		`{"connected":false,"status":"online"}`:        LinkDown,
		`{"status":"charging","state":"connected"}`:    LinkUp,
		`{"status":7}`:                                 LinkUnknown,
		`{}`:                                           LinkUnknown,
		`[1]`:                                          LinkUnknown,
		``:                                             LinkUnknown,
	} {
		if got := ReadLink([]byte(state)); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}
