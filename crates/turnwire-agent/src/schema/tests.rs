use super::*;
use serde_json::json;

fn compile(schema: &Value) -> Result<Schema, SchemaError> {
    Schema::compile(&Json::from(schema.clone()))
}

fn steps(schema: &Value, answer: &Value) -> (Result<(), AnswerError>, u64) {
    let schema = compile(schema).unwrap();
    let mut checker = schema.checker();
    let result = checker.check(answer);
    (result, checker.steps())
}

/// A chain of definitions, in which each applies the one before twice. Expanded it doubles with each.
fn chain(links: usize, apply_twice: impl Fn(Value) -> Value) -> Value {
    let mut definitions = json!({"d0": {"type": "string"}});
    for link in 1..=links {
        let before = json!({"$ref": format!("#/$defs/d{}", link - 1)});
        definitions[format!("d{link}")] = apply_twice(before);
    }
    json!({"$defs": definitions, "$ref": format!("#/$defs/d{links}")})
}

type NestedApplication = (&'static str, fn(Value) -> Value);

fn nested_applications() -> Vec<NestedApplication> {
    vec![
        ("anyOf", |a| json!({"anyOf": [a, a]})),
        ("allOf", |a| json!({"allOf": [a, a]})),
        ("oneOf", |a| json!({"oneOf": [a, a]})),
        ("not", |a| json!({"not": {"not": a}, "allOf": [a]})),
        ("if", |a| json!({"if": a, "then": a, "else": a})),
        ("dependentSchemas", |a| json!({"dependentSchemas": {"x": a, "y": a}})),
        ("dependencies", |a| json!({"dependencies": {"x": a, "y": a}})),
        ("items", |a| json!({"items": a, "contains": a})),
        ("prefixItems", |a| json!({"prefixItems": [a, a]})),
        ("properties", |a| json!({"properties": {"x": a, "y": a}})),
        ("patternProperties", |a| json!({"patternProperties": {"^x": a, "^y": a}})),
        ("additionalProperties", |a| json!({"additionalProperties": a, "propertyNames": a})),
        ("unevaluated", |a| json!({"unevaluatedProperties": a, "unevaluatedItems": a})),
    ]
}

#[test]
fn a_schema_that_doubles_with_each_reference_is_refused() {
    for (name, apply_twice) in nested_applications() {
        let refused = compile(&chain(30, apply_twice));
        assert!(matches!(refused, Err(SchemaError::TooLarge(_))), "{name}: {refused:?}");
        assert!(compile(&chain(6, apply_twice)).is_ok(), "{name}");
    }
}

#[test]
fn a_doubling_schema_is_refused_wherever_its_parts_are() {
    let twice = |a: Value| json!({"anyOf": [a, a]});
    let chained = |place: &str, link: &dyn Fn(usize) -> Value| {
        let mut schema = json!({place: {"d0": {"type": "string"}}});
        for at in 1..=30 {
            schema[place][format!("d{at}")] = twice(link(at - 1));
        }
        schema["allOf"] = json!([link(30)]);
        schema
    };
    let pointer =
        |place: &'static str| move |at: usize| json!({"$ref": format!("#/{place}/d{at}")});
    let mut schemas = vec![
        chained("definitions", &pointer("definitions")),
        chained("$defs", &pointer("%24defs")),
        // A place that is no place for schemas: only pointers lead there.
        chained("x-parts", &pointer("x-parts")),
        chained("default", &pointer("default")),
    ];
    let mut anchors = chained("$defs", &|at| json!({"$ref": format!("#d{at}")}));
    let mut ids = chained("$defs", &|at| json!({"$ref": format!("https://example.com/d{at}")}));
    let mut dynamic = chained("$defs", &|at| json!({"$dynamicRef": format!("#d{at}")}));
    for at in 0..=30 {
        let name = format!("d{at}");
        anchors["$defs"][&name]["$anchor"] = json!(name);
        ids["$defs"][&name]["$id"] = json!(format!("https://example.com/d{at}"));
        dynamic["$defs"][&name]["$dynamicAnchor"] = json!(name);
    }
    schemas.extend([anchors, ids, dynamic]);
    // Nested in each other: each refers to the whole of the one within it.
    let mut nested = json!({"type": "string"});
    let mut path = String::from("#");
    let pointers: Vec<String> = (0..20)
        .map(|_| {
            path.push_str("/$defs/a");
            path.clone()
        })
        .collect();
    for inner in pointers.iter().rev() {
        nested = json!({"anyOf": [{"$ref": inner}, {"$ref": inner}], "$defs": {"a": nested}});
    }
    schemas.push(nested);
    // Two chains that refer to each other.
    let mut mutual = json!({"$defs": {"a0": {}, "b0": {}}, "$ref": "#/$defs/a30"});
    for at in 1..=30 {
        let refs = |name: &str| json!({"$ref": format!("#/$defs/{name}{}", at - 1)});
        mutual["$defs"][format!("a{at}")] = json!({"anyOf": [refs("a"), refs("b")]});
        mutual["$defs"][format!("b{at}")] = json!({"allOf": [refs("b"), refs("a")]});
    }
    schemas.push(mutual);
    for schema in schemas {
        let refused = compile(&schema);
        assert!(matches!(refused, Err(SchemaError::TooLarge(_))), "{refused:?}: {schema}");
    }
}

#[test]
fn older_drafts_have_the_same_bounds() {
    for draft in
        ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
    {
        let mut schema = json!({"$schema": draft, "definitions": {"d0": {}}});
        for at in 1..=30 {
            let before = json!({"$ref": format!("#/definitions/d{}", at - 1)});
            schema["definitions"][format!("d{at}")] = json!({"anyOf": [before, before]});
        }
        schema["allOf"] = json!([{"$ref": "#/definitions/d30"}]);
        assert!(matches!(compile(&schema), Err(SchemaError::TooLarge(_))), "{draft}");
    }
    let mut recursive = json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": true,
        "anyOf": [{"items": {"$recursiveRef": "#"}}, {"items": {"$recursiveRef": "#"}}],
    });
    recursive["type"] = json!("array");
    let (checked, steps) = steps(&recursive, &nested_array(100));
    assert_eq!(checked, Ok(()));
    assert!(steps < 2000, "{steps}");
}

fn nested_array(levels: usize) -> Value {
    (0..levels).fold(json!([]), |inner, _| json!([inner]))
}

#[test]
fn a_recursive_schema_costs_no_more_than_its_size_times_that_of_the_answer() {
    let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
    let recursive = [
        json!({"items": {"anyOf": twice}}),
        json!({"items": {"allOf": twice}}),
        json!({"items": {"oneOf": [{"$ref": "#"}, {"allOf": [false, {"$ref": "#"}]}]}}),
        json!({"items": {"not": {"not": {"$ref": "#"}}, "allOf": twice}}),
        json!({"items": {"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}}}),
        json!({"anyOf": [{"items": {"$ref": "#"}, "minItems": 5}, {"items": {"$ref": "#"}}]}),
        json!({"anyOf": twice, "items": {"$ref": "#"}}),
        json!({"allOf": [{"items": {"$ref": "#"}}], "items": {"$ref": "#"}, "contains": {"$ref": "#"},
            "minContains": 0, "unevaluatedItems": {"$ref": "#"}}),
        json!({"items": {"anyOf": twice}, "unevaluatedItems": false}),
    ];
    for schema in &recursive {
        let (_, few) = steps(schema, &nested_array(20));
        let (_, many) = steps(schema, &nested_array(80));
        assert!(many < few * 5, "{few} and {many} steps: {schema}");
        // The same with an answer that does not match: what is wrong is told.
        let wrong =
            json!({"allOf": [schema, {"$ref": "#/$defs/no"}], "$defs": {"no": {"type": "null"}}});
        let (checked, _) = steps(&wrong, &nested_array(20));
        assert!(matches!(checked, Err(AnswerError::Mismatch(_))), "{checked:?}");
    }
}

#[test]
fn a_union_of_many_recursive_types_is_checked() {
    let operation = |name: &str| {
        json!({"type": "object", "required": ["left", "right", "op"], "additionalProperties": false,
            "properties": {"left": {"$ref": "#/$defs/expr"}, "right": {"$ref": "#/$defs/expr"},
                "op": {"const": name}}})
    };
    let mut kinds: Vec<Value> = (0..40).map(|at| operation(&format!("op{at}"))).collect();
    kinds.push(json!({"type": "integer"}));
    let schema = json!({"$ref": "#/$defs/expr", "$defs": {"expr": {"anyOf": kinds}}});
    let tree = (0..40)
        .fold(json!(1), |inner, at| json!({"left": inner, "right": 2, "op": format!("op{at}")}));
    let (checked, count) = steps(&schema, &tree);
    assert_eq!(checked, Ok(()));
    assert!(count < 100_000, "{count}");
    let wrong =
        (0..40).fold(json!("1"), |inner, _| json!({"left": inner, "right": 2, "op": "op1"}));
    assert!(matches!(steps(&schema, &wrong).0, Err(AnswerError::Mismatch(_))));
}

#[test]
fn expensive_patterns_are_refused() {
    let long = "a?".repeat(MAX_PATTERN_BYTES);
    let patterns = [
        "(a{1000}){1000}",
        "((a{100}){100}){100}",
        "(((((((a{9}){9}){9}){9}){9}){9}){9})",
        "(?:){1000000000}(a{200000})",
        r"(\p{L}{1000}){100}",
        "(.{0,4000}){100}",
        "(",
        "^(?=a)b",
        long.as_str(),
    ];
    for pattern in patterns {
        for schema in [
            json!({"pattern": pattern}),
            json!({"patternProperties": {(pattern): true}}),
            json!({"propertyNames": {"pattern": pattern}}),
            json!({"$ref": "#/x", "x": {"pattern": pattern}}),
        ] {
            assert!(compile(&schema).is_err(), "{pattern}");
        }
    }
    let many: Vec<Value> =
        (0..=MAX_PATTERNS).map(|at| json!({"pattern": format!("^{at}$")})).collect();
    assert!(matches!(compile(&json!({"anyOf": many})), Err(SchemaError::TooLarge(_))));
    // Each is allowed, all of them together are not.
    let large: Vec<Value> =
        (1..50).map(|at| json!({"pattern": format!("a{{{}}}b", 4000 + at)})).collect();
    assert!(compile(&large[0]).is_ok());
    assert!(compile(&json!({"anyOf": large})).is_err());
}

#[test]
fn a_pattern_on_a_long_text_is_counted_before_it_is_searched() {
    let schema = json!({"pattern": "^(.{0,300}x)*[01]{900}$"});
    assert_eq!(
        steps(&schema, &json!("short")).0,
        Err(AnswerError::Mismatch("the text does not match `pattern`".to_owned()))
    );
    let (checked, _) = steps(&schema, &json!("01".repeat(400_000)));
    assert!(matches!(checked, Err(AnswerError::TooExpensive(_))), "{checked:?}");
    let ordinary = json!({"items": {"pattern": r"^\d{4}-\d{2}-\d{2}$"}});
    let dates: Vec<&str> = vec!["2026-11-16"; 10_000];
    assert_eq!(steps(&ordinary, &json!(dates)).0, Ok(()));
}

#[test]
fn large_deep_and_numerous_schemas_are_refused() {
    let text = "x".repeat(MAX_BYTES);
    assert!(matches!(compile(&json!({"description": text})), Err(SchemaError::TooLarge(_))));
    let deep = (0..MAX_DEPTH).fold(json!({}), |inner, _| json!({"not": inner}));
    assert!(matches!(compile(&deep), Err(SchemaError::TooLarge(_))));
    let hidden = (0..MAX_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    assert!(matches!(compile(&json!({"default": hidden})), Err(SchemaError::TooLarge(_))));
    let many: Vec<Value> = vec![json!({}); MAX_NODES];
    assert!(matches!(compile(&json!({"anyOf": many})), Err(SchemaError::TooLarge(_))));
    let too_deep_to_read = "{\"not\":".repeat(5000) + "{}" + &"}".repeat(5000);
    if let Ok(json) = Json::parse(&too_deep_to_read) {
        assert!(Schema::compile(&json).is_err());
    }
    let folder = "a".repeat(300) + "/";
    let ids = (0..5).fold(json!({}), |inner, _| json!({"$id": folder, "properties": {"x": inner}}));
    assert!(matches!(compile(&ids), Err(SchemaError::TooLarge(_))));
}

#[test]
fn an_error_does_not_repeat_a_large_schema() {
    let text = "x".repeat(100_000);
    for schema in [json!({"type": text}), json!({"$ref": text}), json!({"not": [text]})] {
        let error = compile(&schema).unwrap_err().to_string();
        assert!(error.len() < 1000, "{} bytes", error.len());
    }
}

#[test]
fn dynamic_references_through_many_resources_are_refused() {
    let mut definitions = json!({});
    for at in 0..100 {
        let next = format!("https://example.com/r{}", (at + 1) % 100);
        definitions[format!("r{at}")] = json!({"$id": format!("https://example.com/r{at}"),
            "$dynamicAnchor": "x", "items": {"$ref": next}, "properties": {"y": {"$dynamicRef": "#x"}}});
    }
    let schema = json!({"$defs": definitions, "$ref": "https://example.com/r0"});
    assert!(matches!(compile(&schema), Err(SchemaError::TooLarge(_))));
}

#[test]
fn a_long_chain_of_references_does_not_overflow_the_stack() {
    let mut definitions = json!({"d0": {"type": "string"}});
    for at in 1..4000 {
        definitions[format!("d{at}")] = json!({"$ref": format!("#/$defs/d{}", at - 1)});
    }
    let (checked, _) = steps(&json!({"$defs": definitions, "$ref": "#/$defs/d3999"}), &json!("x"));
    assert!(matches!(checked, Err(AnswerError::TooExpensive(_))), "{checked:?}");
}

#[test]
fn schemas_that_refer_to_themselves_in_place_come_to_an_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "null"}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"propertyNames": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}),
    ] {
        let (checked, count) = steps(&schema, &json!({"a": {"a": {}}}));
        assert!(!matches!(checked, Err(AnswerError::TooExpensive(_))), "{schema}");
        assert!(count < 1000, "{count}: {schema}");
    }
}

#[test]
fn an_answer_that_takes_too_many_steps_is_given_up() {
    // Each of 1500 items is compared with 3000 subschemas.
    let schemas: Vec<Value> = (0..3000).map(|at| json!({"const": at})).collect();
    let schema = json!({"items": {"anyOf": schemas}});
    let items: Vec<i64> = vec![-1; 1500];
    let (checked, _) = steps(&json!({"items": {"not": schema["items"]}}), &json!(items));
    assert!(matches!(checked, Err(AnswerError::TooExpensive(_))), "{checked:?}");
}

#[test]
fn unique_items_cost_no_more_than_their_size() {
    let schema = json!({"uniqueItems": true});
    let nested: Vec<Value> = (0..3000).map(|at| json!([[at % 2], [[at / 2]]])).collect();
    assert_eq!(steps(&schema, &json!(nested)).0, Ok(()));
    for same in [json!([1, 1.0]), json!([0.0, -0.0]), json!([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}])]
    {
        assert!(matches!(steps(&schema, &same).0, Err(AnswerError::Mismatch(_))), "{same}");
    }
    for differ in [
        json!([1, "1"]),
        json!([[1, 2], [[1], 2]]),
        json!([9_007_199_254_740_993_u64, 9_007_199_254_740_992_u64]),
    ] {
        assert_eq!(steps(&schema, &differ).0, Ok(()), "{differ}");
    }
}

#[test]
fn ordinary_schemas_of_fifty_kilobytes_are_compiled() {
    let mut definitions = json!({});
    for at in 0..150 {
        definitions[format!("Model{at}")] = json!({
            "type": "object", "title": format!("Model{at}"), "additionalProperties": false,
            "description": "What a generator writes about a type, in one or two sentences of text.",
            "required": ["name", "kind"],
            "properties": {
                "name": {"type": "string", "title": "Name", "minLength": 1},
                "kind": {"enum": ["one", "two", "three"]},
                "when": {"type": "string", "format": "date-time"},
                "next": {"anyOf": [{"$ref": format!("#/$defs/Model{}", (at + 1) % 150)}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": format!("#/$defs/Model{}", at / 2)}},
            },
        });
    }
    let schema = json!({"$defs": definitions, "$ref": "#/$defs/Model0"});
    assert!(schema.to_string().len() > 50_000);
    let answer = json!({"name": "a", "kind": "one", "next": {"name": "b", "kind": "two"},
        "children": [{"name": "c", "kind": "three", "children": []}]});
    assert_eq!(steps(&schema, &answer).0, Ok(()));
    let (checked, _) = steps(&schema, &json!({"name": "a", "kind": "four", "more": 1}));
    let Err(AnswerError::Mismatch(why)) = checked else { panic!("{checked:?}") };
    assert!(why.contains("/kind") && why.contains("/more"), "{why}");
}

/// For schemas and answers at random: the crate `jsonschema` says the same, and no more steps are taken than
/// there are pairs of a subschema and a value, times what one subschema costs.
#[test]
fn random_schemas_give_what_the_library_gives_within_counted_steps() {
    let seed = 0x5eed;
    let mut random = Random(seed);
    for round in 0..400 {
        let schema = random.schema(3);
        let schema = json!({"$defs": {"a": random.schema(2), "b": random.schema(2)}, "allOf": [schema, {"$ref": "#/$defs/a"}]});
        let Ok(ours) = compile(&schema) else { continue };
        let theirs = jsonschema::validator_for(&schema).unwrap();
        for _ in 0..5 {
            let answer = random.value(3);
            let mut checker = ours.checker();
            let result = checker.check(&answer);
            let expected = theirs.is_valid(&answer);
            assert_eq!(result.is_ok(), expected, "seed {seed}, round {round}: {schema} {answer}");
            let pairs = count(&schema) * count(&answer);
            let steps = usize::try_from(checker.steps()).unwrap();
            assert!(steps < 40 * pairs, "seed {seed}, round {round}: {steps} steps, {pairs} pairs");
        }
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// A small generator of numbers, and of schemas and values from them.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn name(&mut self) -> &'static str {
        ["x", "y", "z"][self.below(3)]
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 7 }) {
            0 => json!(self.below(4)),
            1 => json!(self.name()),
            2 => json!(null),
            3 => json!([]),
            4 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let fields = 0..self.below(4);
                Value::Object(
                    fields.map(|_| (self.name().to_owned(), self.value(depth - 1))).collect(),
                )
            }
        }
    }

    fn schema(&mut self, depth: usize) -> Value {
        if depth == 0 {
            return match self.below(7) {
                0 => json!(true),
                1 => json!({"type": ["object", "array", "null"]}),
                2 => json!({"type": "integer", "minimum": self.below(3)}),
                3 => json!({"pattern": "^[xy]$"}),
                4 => json!({"required": [self.name()]}),
                // Not in place: what a schema that refers to itself in place means is not defined.
                5 => {
                    json!({"items": {"$ref": "#/$defs/a"}, "properties": {"x": {"$ref": "#/$defs/b"}}})
                }
                _ => json!({"additionalProperties": {"$ref": "#/$defs/b"}}),
            };
        }
        let mut schema = json!({});
        for _ in 0..=self.below(2) {
            let (one, two) = (self.schema(depth - 1), self.schema(depth - 1));
            let (word, value) = match self.below(14) {
                0 => ("anyOf", json!([one, two])),
                1 => ("oneOf", json!([one, two])),
                2 => ("allOf", json!([one, two])),
                3 => (
                    "not",
                    json!({"required": [self.name()], "properties": {"x": {"type": "null"}}}),
                ),
                4 => ("properties", json!({self.name(): one, "y": two})),
                5 => ("additionalProperties", one),
                6 => ("patternProperties", json!({"^[xy]": one})),
                7 => ("items", one),
                8 => ("prefixItems", json!([one, two])),
                9 => ("contains", json!({"type": "integer"})),
                10 => ("unevaluatedProperties", json!({"type": "integer"})),
                11 => ("unevaluatedItems", json!({"type": "string"})),
                12 => ("dependentSchemas", json!({"x": one})),
                _ => ("if", json!({"required": ["x"]})),
            };
            schema[word] = value;
            if word == "if" {
                schema["then"] = two;
            }
        }
        schema
    }
}
