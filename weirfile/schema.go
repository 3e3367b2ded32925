package weirfile

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir"
)

// Schema returns the JSON schema of a file, with the algorithms of opts, so that an
// editor completes and checks it. The file schema.json beside this package has the schema
// without algorithms of your own. For an editor with the YAML language server, name the
// schema in the first line of a file:
//
//	# yaml-language-server: $schema=https://raw.githubusercontent.com/weir-go/weir/main/weirfile/schema.json
//
// The error is that of Options.Algorithms: see [Parse].
func Schema(opts *Options) ([]byte, error) {
	list, err := kinds(opts.orDefault().Algorithms)
	if err != nil {
		return nil, err
	}
	rule := closed(object{
		"by":     object{"$ref": "#/$defs/segments", "description": "The segments that identify the limit. By default, all of them do."},
		"unit":   object{"type": "string", "description": "The unit, one of those of the policy, that the rule counts. By default, it counts the cost."},
		"shadow": object{"type": "boolean", "description": "The rule decides and counts, but denies no request."},
	})
	addLimit(rule, list)
	limit := closed(object{})
	addLimit(limit, list)
	var kindRules []any
	for _, k := range list {
		required := []string{}
		properties := object{"algorithm": object{"const": k.name}}
		for _, name := range append(append(names{}, ruleFields...), fieldNames(k.fields)...) {
			if _, ok := properties[name]; !ok {
				properties[name] = true
			}
		}
		for _, f := range k.fields {
			properties[f.name] = f.codec.schema
			if f.required {
				required = append(required, f.name)
			}
		}
		kindRules = append(kindRules, object{
			"if":   object{"properties": object{"algorithm": object{"const": k.name}}, "required": []string{"algorithm"}},
			"then": object{"properties": properties, "required": required, "additionalProperties": false},
		})
	}
	rule["required"], rule["allOf"] = []string{"algorithm"}, kindRules
	limits := object{"type": "object", "additionalProperties": object{"$ref": "#/$defs/limit"}, "description": "The rules that differ, with the fields that differ."}
	scalar := object{"type": []string{"string", "number", "boolean"}}
	override := closed(object{
		"match":     object{"type": "object", "additionalProperties": scalar, "minProperties": 1, "maxProperties": weir.MaxSegments, "description": "The callers, by their segments. Segments that are left out can be any."},
		"plan":      object{"type": "string"},
		"rules":     limits,
		"unlimited": object{"const": true, "description": "Every request is allowed, and nothing is counted."},
		"blocked":   object{"const": true, "description": "Every new request is denied."},
	})
	override["required"], override["anyOf"] = []string{"match"}, []any{object{"required": []string{"plan"}}, object{"required": []string{"rules"}}, object{"required": []string{"unlimited"}}, object{"required": []string{"blocked"}}}
	access := object{"enum": []any{object{"unlimited": true}, object{"blocked": true}}}
	policy := closed(object{
		"segments":  object{"$ref": "#/$defs/segments", "description": "The names of the segments of a key. By default, there is one."},
		"secret":    object{"$ref": "#/$defs/segments", "description": "The segments that are stored as a hash."},
		"units":     object{"type": "array", "items": object{"type": "string"}, "minItems": 1, "maxItems": weir.MaxUnits, "uniqueItems": true, "description": "What requests consume apart from their cost."},
		"settles":   object{"type": "boolean", "description": "Decisions can be settled for at least 10 minutes, also beside a concurrency limit, whose cost must be 1."},
		"rules":     object{"type": "object", "minProperties": 1, "maxProperties": weir.MaxRules, "additionalProperties": object{"$ref": "#/$defs/rule"}},
		"plans":     object{"type": "object", "additionalProperties": object{"anyOf": []any{limits, access}}, "description": "Named limits. A request names its plan."},
		"overrides": object{"type": "array", "items": override, "description": "The limits of some callers. For each rule, the override that names the most segments wins."},
	})
	policy["required"] = []string{"rules"}
	root := closed(object{
		"$schema":  object{"type": "string"},
		"policies": object{"type": "object", "minProperties": 1, "additionalProperties": policy},
	})
	root["$schema"], root["title"], root["required"] = "https://json-schema.org/draft/2020-12/schema", "Limits for weir", []string{"policies"}
	root["$defs"] = object{
		"rule":     rule,
		"limit":    limit,
		"segments": object{"type": "array", "items": object{"type": "string"}, "minItems": 1, "maxItems": weir.MaxSegments, "uniqueItems": true},
	}
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

type object = map[string]any

// closed is the schema of a mapping with these fields.
func closed(properties object) object {
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

// addLimit adds the fields of all algorithms to the schema of a rule.
func addLimit(schema object, list []*kind) {
	var known []string
	properties := schema["properties"].(object)
	fields := map[string][]any{}
	for _, k := range list {
		known = append(known, k.name)
		for _, f := range k.fields {
			if !slices.ContainsFunc(fields[f.name], func(s any) bool { return reflect.DeepEqual(s, f.codec.schema) }) {
				fields[f.name] = append(fields[f.name], f.codec.schema)
			}
		}
	}
	for name := range maps.Keys(fields) {
		if properties[name] = fields[name][0]; len(fields[name]) > 1 {
			properties[name] = object{"anyOf": fields[name]}
		}
	}
	properties["algorithm"] = object{"enum": known}
	properties["cost"] = object{"type": "integer", "minimum": 1, "description": "What each request consumes from this rule. By default, the cost of the request."}
}
