package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/ops"
)

func newProfile() *cobra.Command {
	cmd := &cobra.Command{Use: "profile", Short: "Look at device profiles and try them on messages"}
	cmd.AddCommand(newProfileShow(), newProfileTest())
	return cmd
}

func newProfileShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Print a profile as YAML, to start your own from",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			profiles, err := ingest.LoadProfiles(args)
			if err != nil {
				return ops.UsageError(err)
			}
			text, err := ingest.WriteProfile(profiles[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

// profileTest is one `ingest profile test`.
type profileTest struct {
	Profiles  []string `koanf:"profiles" help:"device profiles in order of precedence: built-in names or YAML files, comma list"`
	Hub       string   `koanf:"hub" help:"hub of topics that name none"`
	topic     string
	payload   string
	recording string
	asJSON    bool
}

func newProfileTest() *cobra.Command {
	p := profileTest{Hub: "hub"}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Show what is extracted from messages, the class of each and why; needs no database",
		Long: `Show what is extracted from messages, the class of each and why. Needs no database and no broker.

  ingest profile test --profiles mine.yaml --topic plant/7/state --payload '{"n":1}'
  mosquitto_sub -v -t '#' -F %j > recording.ndjson; ingest profile test --profiles mine.yaml --recording recording.ndjson

A recording holds one JSON object a line: topic, payload (JSON, or text in a string), and, when there, tst (time of
arrival) and retain. With --json the answer is one object: messages and streams.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	ops.AddFlags(cmd.Flags(), &p)
	cmd.Flags().StringVar(&p.topic, "topic", "", "topic of one message")
	cmd.Flags().StringVar(&p.payload, "payload", "", "payload of one message; @FILE reads it, @- reads standard input")
	cmd.Flags().StringVar(&p.recording, "recording", "", "recording to replay; - reads standard input")
	jsonFlag(cmd, &p.asJSON)
	return cmd
}

type testAnswer struct {
	Messages []ingest.Outcome       `json:"messages"`
	Streams  []ingest.StreamSummary `json:"streams"`
}

func (p *profileTest) run(cmd *cobra.Command) error {
	if err := ops.Load(cmd.Flags(), p); err != nil {
		return err
	}
	if (p.topic == "") == (p.recording == "") {
		return ops.UsageError(fmt.Errorf("give either --topic and --payload, or --recording"))
	}
	sim, err := ingest.NewSimulation(ingest.Config{Profiles: p.Profiles, Hub: p.Hub})
	if err != nil {
		return ops.UsageError(err)
	}
	var answer testAnswer
	if p.recording != "" {
		answer.Messages, err = p.replay(cmd, sim)
	} else {
		answer.Messages, err = p.single(cmd, sim)
	}
	if err != nil {
		return err
	}
	answer.Streams = sim.Streams()
	if p.asJSON {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	return answer.print(cmd.OutOrStdout())
}

func (p *profileTest) single(cmd *cobra.Command, sim *ingest.Simulation) ([]ingest.Outcome, error) {
	payload, err := readArgument(cmd, p.payload)
	if err != nil {
		return nil, err
	}
	return []ingest.Outcome{sim.Feed(p.topic, payload, false, time.Now())}, nil
}

func readArgument(cmd *cobra.Command, text string) ([]byte, error) {
	switch {
	case text == "@-":
		return io.ReadAll(cmd.InOrStdin())
	case len(text) > 0 && text[0] == '@':
		return os.ReadFile(text[1:])
	}
	return []byte(text), nil
}

func (p *profileTest) replay(cmd *cobra.Command, sim *ingest.Simulation) ([]ingest.Outcome, error) {
	in := cmd.InOrStdin()
	if p.recording != "-" {
		f, err := os.Open(p.recording)
		if err != nil {
			return nil, ops.UsageError(err)
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 4<<20)
	var all []ingest.Outcome
	for n := 1; lines.Scan(); n++ {
		m, err := parseRecorded(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("recording, line %d: %w", n, err)
		}
		all = append(all, sim.Feed(m.topic, m.payload, m.retained, m.at))
	}
	return all, lines.Err()
}

// recorded is one message of a recording.
type recorded struct {
	topic    string
	payload  []byte
	retained bool
	at       time.Time
}

func parseRecorded(line []byte) (recorded, error) {
	var m struct {
		At      string          `json:"tst"`
		Topic   string          `json:"topic"`
		Retain  int             `json:"retain"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return recorded{}, err
	}
	r := recorded{topic: m.Topic, payload: m.Payload, retained: m.Retain == 1, at: time.Now()}
	if len(m.Payload) > 0 && m.Payload[0] == '"' {
		var text string
		if err := json.Unmarshal(m.Payload, &text); err != nil {
			return r, err
		}
		r.payload = []byte(text)
	}
	if m.At == "" {
		return r, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999Z-0700", time.RFC3339Nano, "2006-01-02T15:04:05.999999999-0700"} {
		if at, err := time.Parse(layout, m.At); err == nil {
			r.at = at
			return r, nil
		}
	}
	return r, fmt.Errorf("tst %q is no time", m.At)
}

func (a testAnswer) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DEVICE\tSTREAM\tCOUNTER\tCLASS\tEVENT\tMARKS\tWHY")
	for _, m := range a.Messages {
		event := "-"
		if m.Event {
			event = fmt.Sprint(m.Sequence)
		}
		device := m.Device
		if device == "" {
			device = m.Topic
		}
		why := m.Why
		if len(m.Gaps) > 0 {
			why += fmt.Sprintf("; missing %v", m.Gaps)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", device, m.Stream, number(m.Counter), m.Class, event, m.Marks, why)
	}
	fmt.Fprintln(table, "\nDEVICE\tSTREAM\tCOUNTER\tEVENTS\tMISSED\tLATE\tDUPLICATE\tQUARANTINED")
	for _, s := range a.Streams {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", s.Device, s.Stream, number(s.Counter), s.Sequence, s.Missed, s.Late, s.Duplicate, s.Quarantined)
	}
	return table.Flush()
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
