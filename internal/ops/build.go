package ops

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry is a Prometheus registry that already shows the Go runtime, the process and what was built.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	version, revision := Build()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ops_build_info", Help: "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision},
	})
	info.Set(1)
	reg.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Build tells the module version and the commit this binary was built from ("dirty" when the tree had changes).
func Build() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	version, revision = info.Main.Version, "unknown"
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return version, revision + dirty
}
