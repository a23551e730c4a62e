package devicestate

// Limits bound what one report may cost. The zero value means the defaults.
type Limits struct {
	Payload  int `yaml:"payload" json:"payload"`   // bytes; default 262144
	IDLevel  int `yaml:"id_level" json:"id_level"` // bytes of one level of a topic that becomes an id; default 128
	Depth    int `yaml:"depth" json:"depth"`       // nesting of objects and arrays; default 32
	Exponent int `yaml:"exponent" json:"exponent"` // magnitude of a number's written exponent; default 308
}

// WithDefaults returns l with every zero replaced by its default.
func (l Limits) WithDefaults() Limits {
	l.Payload = orDefault(l.Payload, 256<<10)
	l.IDLevel = orDefault(l.IDLevel, 128)
	l.Depth = orDefault(l.Depth, 32)
	l.Exponent = orDefault(l.Exponent, 308)
	return l
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
