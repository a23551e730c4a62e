// Package grafana builds the Grafana dashboard of Hubstate. The JSON beside it is generated: change the tables in
// panels.go, then run `go test ./deploy/grafana/ -update`. The page of cmd/monitor is for the people at a hub; this
// dashboard is for those who run the pipeline, beside the rest of their systems.
package grafana

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// panel is one picture: a table row of panels.go.
type panel struct {
	title   string
	what    string // the description: how to read it
	unit    string // Grafana's unit id
	single  bool   // one number instead of curves
	stacked bool
	queries []query
}

type query struct{ expr, legend string }

// row is a line of panels under a heading.
type row struct {
	title  string
	panels []panel
}

// columns is the width of Grafana's grid.
const columns = 24

// Dashboard builds the dashboard. It reads no metric that the code does not have (tested).
func Dashboard() (dashboard.Dashboard, error) {
	b := dashboard.NewDashboardBuilder("Hubstate").
		Uid("hubstate").
		Description("Device state from MQTT to the screen: is the device silent, is the pipeline late, is a clock wrong?").
		Tags([]string{"hubstate", "generated"}).
		Refresh("10s").Time("now-3h", "now").Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("hub").Label("Hub").Datasource(source()).
			Query(dashboard.StringOrMap{String: new("label_values(monitor_devices, hub)")}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortNaturalAsc).Multi(true).IncludeAll(true).AllValue(".*"))
	id := uint32(1)
	for _, r := range rows() {
		b = b.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		id++
		for _, p := range r.panels {
			b = b.WithPanel(p.build(id, uint32(columns/len(r.panels))))
			id++
		}
	}
	d, err := b.Build()
	if err != nil {
		return d, fmt.Errorf("build dashboard: %w", err)
	}
	return d, nil
}

// JSON is the dashboard as Grafana imports it, indented.
func JSON() ([]byte, error) {
	d, err := Dashboard()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode dashboard: %w", err)
	}
	return append(text, '\n'), nil
}

// source follows the dashboard's variable, so that it can be imported anywhere.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

func (p panel) build(id, span uint32) cog.Builder[dashboard.Panel] {
	if p.single {
		b := stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.what).Datasource(source()).Unit(p.unit).Span(span).Height(4)
		for i, q := range p.queries {
			b = b.WithTarget(q.build(i))
		}
		return b
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.what).Datasource(source()).Unit(p.unit).Span(span).Height(8).
		Min(0).LineWidth(1).FillOpacity(8)
	if p.stacked {
		b = b.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	for i, q := range p.queries {
		b = b.WithTarget(q.build(i))
	}
	return b
}

func (q query) build(i int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Expr(q.expr).LegendFormat(q.legend).Datasource(source())
}
