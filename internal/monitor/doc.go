// Package monitor answers one question for people at a hub: how old is the truth, and if it is old, what is wrong: the
// device, the pipeline or the clock?
//
// # Three questions, never mixed
//
//	is the device silent?   its last live report (our receive time) is older than its stream may be quiet
//	is the pipeline late?   rows wait in an outbox, records wait between Kafka and this view
//	is the clock wrong?     the device's own time is implausible, or stays behind ours; it is shown, and used for nothing
//
// # What this screen vouches for
//
// A screen that calls a device silent claims to have looked. So every judgement is made as of the Horizon: the instant
// up to which this view has provably seen everything (see Horizon and AsOf). A device that became overdue after it is
// Unknown, not silent. When Kafka, a relay or the view's store stops, the horizon stands still and the answers turn into
// "unknown" by themselves, whatever the reason; no watchdog has to notice first.
//
// # The view
//
// It lives in Redis under one prefix and is written by one script (view.lua), which gates each event, applies it, and
// moves the partition's offset, everything or nothing: an event has its effect once (C1), written twice, late or from two
// instances it changes nothing. The view knows by itself up to where it is complete; one that was flushed has no offset
// and is read again from the start of the topic. Ages are computed from stored receive times, so a restart changes none.
// Several instances share the partitions as one consumer group; each of them serves the whole view.
//
//	d:DEVICE     hash   hub, live, dues, link, suspects; per stream p:STREAM (numbers), v:STREAM (the event), t:STREAM (instants)
//	t:DEVICE     list   the last notable things: reboots, gaps, late reports, clock, holes
//	due:HUB      zset   device → instant at which it becomes silent (ms); 0 = never seen
//	up:HUB       zset   the same, only devices whose connection stream says connected
//	clock:HUB    zset   device → since when its clock is suspect
//	gaps:HUB     zset   device → reports missed before us
//	hub:HUB      hash   totals
//	hubs         zset   hub → last live report
//	names        zset   all devices, for the search
//	loss         zset   holes that nothing explains → when they were seen
//	pos, ans     hash   partition → next offset; the gate's last answer, in case it was lost on its way
//	lat:MINUTE   hash   HUB|stage|bin → count of delays
//
// # The JSON API
//
// Everything the page shows can be read by programs, under the same guard. Instants are RFC 3339, absent when unknown.
//
//	GET /api/v1/overview                                    Overview: parts, findings, hubs, losses
//	GET /api/v1/bands                                       []Band: delays of the last hour by minute
//	GET /api/v1/hubs/{hub}/devices?filter=&offset=&limit=   a hub and a part of its devices, most urgent first
//	GET /api/v1/devices/{device}                            Device: streams and timeline
//	GET /api/v1/search?q=                                   []Row: devices whose id contains q
//	GET /api/v1/losses?limit=                               []Loss: newest first
//	GET /api/v1/live?hub=&device=                           server-sent events: pulse, overview, bands, hub, device
package monitor
