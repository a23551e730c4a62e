package outbox

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// errorGroup is a set of Kafka's errors with one meaning.
type errorGroup struct {
	verdict func(code string) Verdict
	errors  []*kerr.Error
}

// kafkaErrors is the table of all errors of Kafka that a producer can meet. What is not here is Unknown. Two rules
// decide: an error that does not speak about the bytes of a record is never a row's fault; and where it cannot be told,
// the row is retried for long before it is given up.
func kafkaErrors() []errorGroup {
	return []errorGroup{
		{permanent, []*kerr.Error{
			kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord,
		}},
		{throttled, []*kerr.Error{kerr.ThrottlingQuotaExceeded}},
		// Leaders move, brokers restart, disks fill, replicas fall behind. Short breaths: it may be over in a second.
		{outage, []*kerr.Error{
			kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.BrokerNotAvailable,
			kerr.ReplicaNotAvailable, kerr.StaleControllerEpoch, kerr.NetworkException, kerr.NotEnoughReplicas,
			kerr.NotEnoughReplicasAfterAppend, kerr.NotController, kerr.KafkaStorageError, kerr.LogDirNotFound,
			kerr.ListenerNotFound, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.StaleBrokerEpoch,
			kerr.PreferredLeaderNotAvailable, kerr.EligibleLeadersNotAvailable, kerr.NewLeaderElected, kerr.OperationNotAttempted,
			kerr.ReassignmentInProgress, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
			kerr.RebootstrapRequired,
		}},
		// The topic was deleted, re-created or never made. EnsureTopic mends it.
		{outage, []*kerr.Error{
			kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.InvalidTopicException,
		}},
		// The producer's session is lost or confused, not a row. franz-go starts a new one; the cursor decides what is sent again.
		{outage, []*kerr.Error{
			kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID,
			kerr.InvalidProducerIDMapping, kerr.ProducerFenced, kerr.ConcurrentTransactions, kerr.InvalidTxnState,
			kerr.TransactionAbortable,
		}},
		// A right on one topic was taken away. Somebody has to give it back.
		{refused, []*kerr.Error{kerr.TopicAuthorizationFailed}},
		// Login, rights in the cluster, versions: nothing this relay sends can pass.
		{everywhere, []*kerr.Error{
			kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.ClusterAuthorizationFailed,
			kerr.TransactionalIDAuthorizationFailed, kerr.SecurityDisabled, kerr.PrincipalDeserializationFailure,
			kerr.DelegationTokenAuthDisabled, kerr.DelegationTokenNotFound, kerr.DelegationTokenOwnerMismatch,
			kerr.DelegationTokenRequestNotAllowed, kerr.DelegationTokenAuthorizationFailed, kerr.DelegationTokenExpired,
			kerr.UnacceptableCredential, kerr.InvalidPrincipalType, kerr.UnsupportedVersion, kerr.InconsistentClusterID,
		}},
		// Our settings do not fit the topic's; the same for every row.
		{refused, []*kerr.Error{
			kerr.InvalidRequiredAcks, kerr.UnsupportedCompressionType, kerr.UnsupportedForMessageFormat,
			kerr.InvalidTimestamp, // the record's time is the relay's clock
		}},
		// A bad checksum may be a bad cable (heals) or a record that the topic's rules forbid (does not).
		{unknown, []*kerr.Error{
			kerr.UnknownServerError, kerr.CorruptMessage, kerr.InvalidRequest, kerr.PolicyViolation,
		}},
	}
}

// The limits of the classes. They are wide: a row that is given up too early is an operator's work, one that is retried
// too long delays its bucket only.
const (
	unknownAttempts  = 10
	unknownRetryTime = 15 * time.Minute
)

func outage(code string) Verdict {
	return Verdict{Kind: Outage, Code: code, Backoff: Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}}
}

func refused(code string) Verdict {
	return Verdict{Kind: Outage, Code: code, Backoff: Backoff{Base: time.Second, Max: 30 * time.Second}}
}

func everywhere(code string) Verdict {
	v := refused(code)
	v.Everywhere = true
	return v
}

func throttled(code string) Verdict {
	return Verdict{Kind: Throttled, Code: code, Backoff: Backoff{Base: 500 * time.Millisecond, Max: 15 * time.Second}}
}

func permanent(code string) Verdict { return Verdict{Kind: Permanent, Code: code, MaxAttempts: 1} }

func unknown(code string) Verdict {
	return Verdict{
		Kind: Unknown, Code: code, MaxAttempts: unknownAttempts, MaxRetryTime: unknownRetryTime,
		Backoff: Backoff{Base: 200 * time.Millisecond, Max: 2 * time.Minute},
	}
}
