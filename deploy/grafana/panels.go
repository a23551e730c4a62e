package grafana

// rows is the whole dashboard. Series that every monitor shows are joined with max: a second instance doubles nothing.
func rows() []row {
	return []row{
		{"At a glance", glance()},
		{"Devices: who is silent?", devices()},
		{"Pipeline: who is late?", pipeline()},
		{"Integrity: is anything missing?", integrity()},
		{"Ingest", ingest()},
		{"Relay", relay()},
		{"Partitions", partitions()},
	}
}

func glance() []panel {
	return []panel{
		{title: "Age of the screen", what: "Everything that came before this age has been seen. Above a few seconds the pipeline is late, whatever the reason.", unit: "s", single: true,
			queries: []query{{`min(monitor_screen_age_seconds)`, ""}}},
		{title: "Silent devices", what: "Share of the known devices without a live report in time.", unit: "percentunit", single: true,
			queries: []query{{`max(hub:monitor_devices_silent:ratio{hub=~"$hub"})`, ""}}},
		{title: "Oldest unpublished", what: "Age of the oldest committed event that has not reached Kafka, by the database.", unit: "s", single: true,
			queries: []query{{`max(monitor_oldest_unpublished_seconds)`, ""}}},
		{title: "Lost inside, last hour", what: "Must be 0. Anything else is an incident.", unit: "none", single: true,
			queries: []query{{`hubstate:lost_events:increase_1h`, ""}}},
		{title: "Dead letters", what: "Rows that wait for a decision.", unit: "none", single: true,
			queries: []query{{`max(monitor_dead_letters)`, ""}}},
		{title: "Relays", what: "Relays that hold a lease.", unit: "none", single: true,
			queries: []query{{`max(monitor_relays)`, ""}}},
	}
}

func devices() []panel {
	return []panel{
		{title: "Devices by status", what: "Unknown is no fault of the devices: the screen has not seen far enough to judge.", unit: "none", stacked: true,
			queries: []query{{`sum by (status) (max by (hub, status) (monitor_devices{hub=~"$hub"}))`, "{{status}}"}}},
		{title: "Fresh, by hub", what: "The freshness objective: 99 % over 30 days.", unit: "percentunit",
			queries: []query{{`hub:monitor_devices_fresh:ratio{hub=~"$hub"}`, "{{hub}}"}}},
		{title: "Longest silence", what: "How long the longest silent device of a hub is overdue.", unit: "s",
			queries: []query{{`max by (hub) (monitor_oldest_silence_seconds{hub=~"$hub"})`, "{{hub}}"}}},
		{title: "Wrong clocks", what: "Devices whose own time is implausible. It is shown, and decides nothing.", unit: "none",
			queries: []query{{`max by (hub) (monitor_clock_suspect_devices{hub=~"$hub"})`, "{{hub}}"}}},
	}
}

func pipeline() []panel {
	return []panel{
		{title: "Delay by stage, p95", what: "occurred → received depends on the devices' clocks; the rest is ours.", unit: "s",
			queries: []query{{`histogram_quantile(0.95, sum by (le, stage) (rate(monitor_event_delay_seconds_bucket{hub=~"$hub"}[$__rate_interval])))`, "{{stage}}"}}},
		{title: "Received to screen", what: "Everything that is ours, of all events.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(monitor_event_delay_seconds_bucket{stage="whole", hub=~"$hub"}[$__rate_interval])))`, "p50"},
				{`histogram_quantile(0.95, sum by (le) (rate(monitor_event_delay_seconds_bucket{stage="whole", hub=~"$hub"}[$__rate_interval])))`, "p95"},
				{`histogram_quantile(0.99, sum by (le) (rate(monitor_event_delay_seconds_bucket{stage="whole", hub=~"$hub"}[$__rate_interval])))`, "p99"}}},
		{title: "Backlog", what: "What waits before Kafka, and between Kafka and the screen.", unit: "none",
			queries: []query{{`max(monitor_pending_rows)`, "rows before Kafka"}, {`max(monitor_lag_records)`, "records before the screen"}}},
	}
}

func integrity() []panel {
	return []panel{
		{title: "Events by verdict", what: "What the gate of the consumers says. Duplicates and late copies come with crashes and rebalances.", unit: "ops",
			queries: []query{{`sum by (verdict) (rate(consumer_events_total[$__rate_interval]))`, "{{verdict}}"}}},
		{title: "Missing numbers", what: "superseded and dead were left out on purpose; loss must stay 0.", unit: "none",
			queries: []query{{`sum by (cause) (increase(consumer_missing_events_total[$__rate_interval]))`, "{{cause}}"}}},
		{title: "Gaps before us", what: "Reports that devices counted and that never reached us.", unit: "none",
			queries: []query{{`max by (hub) (monitor_missed_reports{hub=~"$hub"})`, "{{hub}}"}, {`sum(increase(ingest_missed_total[$__rate_interval]))`, "new"}}},
		{title: "Repetitions on the topic", what: "Objective: below 0.1 % over a day.", unit: "percentunit",
			queries: []query{{`hubstate:topic_duplicates:ratio_1h`, "1 h"}, {`hubstate:topic_duplicates:ratio_1d`, "1 d"}}},
	}
}

func ingest() []panel {
	return []panel{
		{title: "Reports by class", what: "", unit: "ops", queries: []query{{`sum by (class) (rate(ingest_reports_total[$__rate_interval]))`, "{{class}}"}}},
		{title: "Receive to acknowledgement", what: "The broker's window divided by this is the ceiling of one session.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(ingest_receive_to_ack_seconds_bucket[$__rate_interval])))`, "p50"},
				{`histogram_quantile(0.99, sum by (le) (rate(ingest_receive_to_ack_seconds_bucket[$__rate_interval])))`, "p99"},
				{`histogram_quantile(0.99, sum by (le) (rate(ingest_commit_seconds_bucket[$__rate_interval])))`, "commit p99"}}},
		{title: "Lanes", what: "", unit: "none", queries: []query{{`sum by (state) (ingest_lanes)`, "{{state}}"}, {`max(monitor_lanes_down)`, "held by nobody"}}},
		{title: "Rejects and possible gaps", what: "", unit: "none",
			queries: []query{{`sum by (reason) (increase(ingest_rejects_total[$__rate_interval]))`, "rejected: {{reason}}"},
				{`sum by (cause) (increase(ingest_possible_gaps_total[$__rate_interval]))`, "possible gap: {{cause}}"},
				{`sum(increase(ingest_broker_dropped_total[$__rate_interval]))`, "dropped by the broker"}}},
	}
}

func relay() []panel {
	return []panel{
		{title: "Published", what: "", unit: "ops", queries: []query{{`sum(rate(outbox_published_total[$__rate_interval]))`, "published"}, {`sum(rate(outbox_superseded_total[$__rate_interval]))`, "superseded"}}},
		{title: "Commit to Kafka", what: "From the row's created_at to the acknowledgement of all replicas.", unit: "s",
			queries: []query{{`hubstate:publish_delay_seconds:p50_5m`, "p50"}, {`hubstate:publish_delay_seconds:p99_5m`, "p99"}}},
		{title: "Retries and dead letters", what: "", unit: "none",
			queries: []query{{`sum by (kind, code) (increase(outbox_retries_total[$__rate_interval]))`, "retry {{kind}} {{code}}"},
				{`sum by (code) (increase(outbox_dead_letters_total[$__rate_interval]))`, "dead {{code}}"}}},
		{title: "Buckets, breakers, stalled partitions", what: "Owned buckets add up to all buckets, or some are being handed over.", unit: "none",
			queries: []query{{`sum(outbox_buckets_owned)`, "owned"}, {`sum(outbox_breakers_open)`, "breakers open"}, {`max(outbox_partitions_stalled)`, "Kafka partitions stalled"},
				{`sum(increase(outbox_leases_lost_total[$__rate_interval]))`, "leases lost"}, {`max(monitor_buckets_halted)`, "halted"}}},
	}
}

func partitions() []panel {
	return []panel{
		{title: "Runway", what: "How far ahead tables stand ready.", unit: "s", queries: []query{{`min(partitions_runway_seconds)`, "runway"}}},
		{title: "Tables by phase", what: "", unit: "none", stacked: true, queries: []query{{`max by (phase) (partitions_tables)`, "{{phase}}"}}},
		{title: "Size by phase", what: "", unit: "bytes", stacked: true, queries: []query{{`max by (phase) (partitions_bytes)`, "{{phase}}"}}},
		{title: "Maintenance", what: "", unit: "s", queries: []query{{`time() - max(partitions_last_success_timestamp_seconds)`, "since the last turn"}, {`max(partitions_oldest_ended_seconds)`, "oldest still attached"}}},
	}
}
