package lint

import (
	"go/ast"
	"reflect"
	"strconv"
	"strings"
)

// ConfigKeys returns the configuration keys of a command: the koanf tags of every struct that its binary contains, with
// the help text beside them. Nested keys are included; they are valid in the file only.
func ConfigKeys(t *Tree, command string) map[string]string {
	keys := map[string]string{}
	for _, f := range closure(t, command) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			raw, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				return true
			}
			tag := reflect.StructTag(raw)
			if key, _, _ := strings.Cut(tag.Get("koanf"), ","); key != "" {
				keys[key] = tag.Get("help")
			}
			return true
		})
	}
	return keys
}
