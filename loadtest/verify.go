package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/witness"
)

// verifySettings are the flags of verify.
type verifySettings struct {
	Ledger       string   `koanf:"ledger" help:"ledger.gob.gz of the run to account for"`
	BrokerHurt   bool     `koanf:"broker_hurt" help:"the MQTT broker lost state since: what never reached ingest must lie in a recorded gap"`
	Disturbed    bool     `koanf:"disturbed" help:"something failed since: reports may have been delivered twice"`
	DatabaseURL  string   `koanf:"database_url" help:"PostgreSQL"`
	KafkaBrokers []string `koanf:"kafka_brokers" help:"Kafka seed brokers"`
	KafkaTopic   string   `koanf:"kafka_topic" help:"topic of the events"`
}

func newVerifyCommand() *cobra.Command {
	s := verifySettings{KafkaTopic: "device-state"}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Account for every report of an earlier run",
		Long: `Account for every report of an earlier run, from its ledger, against database and topic as they are now.

The classes are counted over the whole database: verify a database that took only this run, or expect "unbalanced".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ops.Load(cmd.Flags(), &s); err != nil {
				return err
			}
			return verify(cmd.Context(), s, cmd.OutOrStdout())
		},
	}
	ops.AddFlags(cmd.Flags(), &s)
	return cmd
}

func verify(ctx context.Context, s verifySettings, out io.Writer) error {
	if s.Ledger == "" || s.DatabaseURL == "" || len(s.KafkaBrokers) == 0 {
		return ops.UsageError(errors.New("ledger, database_url and kafka_brokers are required"))
	}
	book, err := ledger.Load(s.Ledger)
	if err != nil {
		return err
	}
	if len(book.Streams) == 0 {
		return fmt.Errorf("%s has no devices", s.Ledger)
	}
	prefix, _, _ := strings.Cut(book.Streams[0].Device, "-")
	seed := maphash.MakeSeed()
	h := &oracle.History{Ledger: book, BrokerHurt: s.BrokerHurt, Undisturbed: !s.Disturbed}
	if h.Database, err = witness.ReadDatabase(ctx, s.DatabaseURL, prefix, book, witness.Baseline{}, seed); err != nil {
		return err
	}
	if h.Topic, _, err = witness.ReadTopic(ctx, s.KafkaBrokers, s.KafkaTopic, nil, book, seed); err != nil {
		return err
	}
	result := oracle.Check(h)
	result.Print(out)
	if !result.Correct() {
		return errWrong
	}
	return nil
}
