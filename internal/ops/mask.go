package ops

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const masked = "xxxxx"

var (
	// urlStart finds where a URL begins in a text or a list.
	urlStart = regexp.MustCompile(`(?:^|[\s,;"'(=])[a-zA-Z][a-zA-Z0-9+.-]*://`)
	// userinfo reaches to the last @ of the URL: an unescaped @, / or # in a password must not uncover its rest.
	userinfo = regexp.MustCompile(`(://[^:/?#\s@]*):\S*@`)
	// dsnSecret finds key=value secrets of PostgreSQL DSNs and of URL queries.
	dsnSecret = regexp.MustCompile(`(?i)\b((?:ssl)?password|passwd|pwd|secret|token|access_key|api_key)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&;]+)`)
)

// Mask hides the passwords and tokens in a URL, a DSN, a list of them or a text around them; everything else stays
// readable. Where a URL is ambiguous it hides more rather than less.
func Mask(text string) string {
	text = dsnSecret.ReplaceAllString(text, "${1}${2}"+masked)
	var out strings.Builder
	from := 0
	for _, at := range urlStart.FindAllStringIndex(text, -1) {
		out.WriteString(userinfo.ReplaceAllString(text[from:at[0]], "${1}:"+masked+"@"))
		from = at[0]
	}
	out.WriteString(userinfo.ReplaceAllString(text[from:], "${1}:"+masked+"@"))
	return out.String()
}

// WriteConfig writes the values of cfg, a struct as Load takes it, as YAML that Load reads again.
// Fields tagged `secret:"true"` and passwords in URLs are masked, so what it prints may be shown to anyone.
func WriteConfig(w io.Writer, cfg any) error {
	doc := yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(cfg) {
		value, err := configNode(f.value, f.secret)
		if err != nil {
			return fmt.Errorf("print %s: %w", f.key, err)
		}
		doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.key}, value)
	}
	enc := yaml.NewEncoder(w)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return enc.Close()
}

func configNode(v reflect.Value, secret bool) (*yaml.Node, error) {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case secret && v.IsZero():
		return scalarNode("")
	case secret:
		return scalarNode(masked)
	case v.Kind() == reflect.Struct && len(appendFields(nil, v)) > 0:
		return mappingNode(v)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		return sequenceNode(v)
	case v.Kind() == reflect.Map:
		return mapNode(v)
	}
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return scalarNode(s.String())
	}
	if v.Kind() == reflect.String {
		return scalarNode(Mask(v.String()))
	}
	return scalarNode(v.Interface())
}

func scalarNode(value any) (*yaml.Node, error) {
	node := &yaml.Node{}
	return node, node.Encode(value)
}

func mappingNode(v reflect.Value) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range appendFields(nil, v) {
		value, err := configNode(f.value, f.secret)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.key}, value)
	}
	return node, nil
}

func sequenceNode(v reflect.Value) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		item, err := configNode(v.Index(i), false)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, item)
	}
	return node, nil
}

func mapNode(v reflect.Value) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, key := range keys {
		value, err := configNode(v.MapIndex(key), false)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(key)}, value)
	}
	return node, nil
}
