package monitor

import "time"

// Overview is everything the first page shows, at one instant.
type Overview struct {
	Now      time.Time `json:"now"`
	AsOf     time.Time `json:"as_of,omitzero"` // everything before it has been seen; absent: nothing is vouched for yet
	Pipeline Pipeline  `json:"pipeline"`
	Findings []Finding `json:"findings"`
	Hubs     []Hub     `json:"hubs"`
	Losses   []Loss    `json:"losses"`
}

// Pulse is the part of an overview that is sent many times a second: how old it is and what is wrong.
type Pulse struct {
	Now      time.Time `json:"now"`
	AsOf     time.Time `json:"as_of,omitzero"`
	Pipeline Pipeline  `json:"pipeline"`
	Findings []Finding `json:"findings"`
}

// Band is the delays of one minute.
type Band struct {
	At     time.Time `json:"at"`
	Delays []Delay   `json:"delays"`
}

func (o *Overview) pulse() Pulse {
	return Pulse{Now: o.Now, AsOf: o.AsOf, Pipeline: o.Pipeline, Findings: o.Findings}
}
