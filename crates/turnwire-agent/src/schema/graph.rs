//! The graph of a schema: each subschema once, with references as edges. It is never larger than the
//! schema.

use super::keywords::Keywords;
use super::measure::has_dynamic_references;
use super::{MAX_EXPANDED_NODES, MAX_NODES, SchemaError};
use referencing::{Draft, Registry, Resolver, Uri};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The base URI of a schema without `$id`.
const BASE: &str = "json-schema:///";

/// The index of a subschema.
pub(super) type NodeId = usize;

/// The subschemas of a schema. The first is the schema itself.
pub(super) struct Graph {
    nodes: Vec<Node>,
    pub(super) keywords: Keywords,
    /// Whether evaluated fields and items must be tracked.
    pub(super) has_unevaluated: bool,
    /// Accepts everything; stands for a missing index.
    anything: Node,
}

/// A subschema.
#[derive(Default)]
pub(super) struct Node {
    /// It accepts nothing: `false`.
    pub(super) is_false: bool,
    /// Keywords that check a single value, by index.
    pub(super) assertions: Option<usize>,
    pub(super) pattern: Option<usize>,
    pub(super) unique_items: bool,
    /// `$ref`, similar keywords, and `allOf`.
    pub(super) all_of: Vec<NodeId>,
    pub(super) any_of: Option<Vec<NodeId>>,
    pub(super) one_of: Option<Vec<NodeId>>,
    pub(super) not: Option<NodeId>,
    pub(super) condition: Option<Condition>,
    pub(super) dependent: Vec<(String, NodeId)>,
    pub(super) properties: HashMap<String, NodeId>,
    pub(super) pattern_properties: Vec<(usize, NodeId)>,
    pub(super) additional_properties: Option<NodeId>,
    pub(super) property_names: Option<NodeId>,
    pub(super) prefix_items: Vec<NodeId>,
    /// For the remaining items.
    pub(super) items: Option<NodeId>,
    pub(super) contains: Option<Contains>,
    pub(super) unevaluated_properties: Option<NodeId>,
    pub(super) unevaluated_items: Option<NodeId>,
    /// Whether several subschemas lead here, so that results are worth caching.
    pub(super) is_shared: bool,
}

/// `if`, `then` and `else`.
pub(super) struct Condition {
    pub(super) r#if: NodeId,
    pub(super) then: Option<NodeId>,
    pub(super) otherwise: Option<NodeId>,
}

/// `contains`.
pub(super) struct Contains {
    pub(super) node: NodeId,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    /// Whether matching items count as evaluated.
    pub(super) evaluates: bool,
}

impl Node {
    /// Whether it applies subschemas.
    fn has_children(&self) -> bool {
        self.children().next().is_some()
    }

    /// The subschemas that it applies.
    fn children(&self) -> impl Iterator<Item = NodeId> {
        let lists = [Some(&self.all_of), self.any_of.as_ref(), self.one_of.as_ref()];
        let lists = lists.into_iter().flatten().chain([&self.prefix_items]).flatten().copied();
        let condition = self.condition.iter();
        let condition = condition.flat_map(|found| [Some(found.r#if), found.then, found.otherwise]);
        let single = [
            self.not,
            self.additional_properties,
            self.property_names,
            self.items,
            self.contains.as_ref().map(|contains| contains.node),
            self.unevaluated_properties,
            self.unevaluated_items,
        ];
        lists
            .chain(condition.chain(single).flatten())
            .chain(self.dependent.iter().map(|(_, node)| *node))
            .chain(self.properties.values().copied())
            .chain(self.pattern_properties.iter().map(|(_, node)| *node))
    }
}

impl Graph {
    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id).unwrap_or(&self.anything)
    }

    /// Builds the graph of a schema within the limits.
    pub(super) fn build(schema: &Value, deadline: Instant) -> Result<Self, SchemaError> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err(SchemaError::invalid("a schema is an object or a boolean"));
        }
        jsonschema::meta::validate(schema).map_err(|error| {
            match error.instance_path().as_str() {
                "" => SchemaError::invalid(error),
                path => SchemaError::invalid(format_args!("at {path}: {error}")),
            }
        })?;
        let draft = Draft::default().detect(schema);
        let resource = draft.create_resource_ref(schema);
        let base = referencing::uri::from_str(resource.id().unwrap_or(BASE))?;
        let registry = Registry::new().draft(draft).add(base.as_str(), resource)?.prepare()?;
        let mut builder = Builder {
            nodes: Vec::new(),
            keywords: Keywords::default(),
            known: HashMap::new(),
            waiting: Vec::new(),
            has_unevaluated: false,
            is_dynamic: has_dynamic_references(schema),
        };
        builder.add(schema, registry.resolver(base), draft)?;
        while let Some((id, schema, resolver, draft)) = builder.waiting.pop() {
            if Instant::now() > deadline {
                return Err(SchemaError::TooSlow);
            }
            let node = builder.node(schema, &resolver, draft)?;
            if let Some(place) = builder.nodes.get_mut(id) {
                *place = node;
            }
        }
        let Builder { nodes, keywords, has_unevaluated, .. } = builder;
        let mut graph = Self { nodes, keywords, has_unevaluated, anything: Node::default() };
        graph.mark_shared();
        let expanded = graph.expanded();
        if expanded > MAX_EXPANDED_NODES {
            let why = format!(
                "with its references replaced by what they refer to it has more than \
                 {MAX_EXPANDED_NODES} subschemas"
            );
            return Err(SchemaError::TooLarge(why));
        }
        Ok(graph)
    }

    fn mark_shared(&mut self) {
        let mut references = vec![0_usize; self.nodes.len()];
        // The schema itself is also reached from outside.
        let edges = self.nodes.iter().flat_map(Node::children).chain([0]);
        for target in edges {
            if let Some(count) = references.get_mut(target) {
                *count += 1;
            }
        }
        for (node, count) in self.nodes.iter_mut().zip(references) {
            node.is_shared = count > 1 && node.has_children();
        }
    }

    /// The number of subschemas if each reference were replaced by its target. A recursive reference counts
    /// once.
    fn expanded(&self) -> u64 {
        let mut counts: Vec<Option<u64>> = vec![None; self.nodes.len()];
        let mut is_open = vec![false; self.nodes.len()];
        let mut stack = vec![(0, false)];
        while let Some((id, is_done)) = stack.pop() {
            let (Some(open), Some(None)) = (is_open.get_mut(id), counts.get(id)) else { continue };
            if is_done {
                let children = self.node(id).children();
                let children = children.map(|child| counts.get(child).copied().flatten());
                let sum =
                    children.fold(1, |sum: u64, count| sum.saturating_add(count.unwrap_or(1)));
                if let Some(place) = counts.get_mut(id) {
                    *place = Some(sum);
                }
            } else if !*open {
                *open = true;
                stack.push((id, true));
                stack.extend(self.node(id).children().map(|child| (child, false)));
            }
        }
        counts.first().copied().flatten().unwrap_or_default()
    }
}

/// The identity of a subschema: its address in memory, and the base of its references.
type SubschemaKey = (usize, Vec<Arc<Uri<String>>>);

/// The most URIs that a dynamic reference may depend on.
const MAX_SCOPE: usize = 32;

struct Builder<'s> {
    nodes: Vec<Node>,
    keywords: Keywords,
    known: HashMap<SubschemaKey, NodeId>,
    waiting: Vec<(NodeId, &'s Value, Resolver<'s>, Draft)>,
    has_unevaluated: bool,
    is_dynamic: bool,
}

impl<'s> Builder<'s> {
    /// The index of a subschema. It is read later, so there is no recursion.
    fn add(
        &mut self,
        schema: &'s Value,
        resolver: Resolver<'s>,
        draft: Draft,
    ) -> Result<NodeId, SchemaError> {
        let key = (std::ptr::from_ref(schema) as usize, self.scope(&resolver)?);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let id = self.nodes.len();
        if id >= MAX_NODES {
            let why = format!("it has more than {MAX_NODES} subschemas");
            return Err(SchemaError::TooLarge(why));
        }
        self.nodes.push(Node::default());
        self.known.insert(key, id);
        self.waiting.push((id, schema, resolver, draft));
        Ok(id)
    }

    /// The base of references: the URI, and with dynamic references those on the path to it, each once.
    fn scope(&self, resolver: &Resolver<'s>) -> Result<Vec<Arc<Uri<String>>>, SchemaError> {
        if !self.is_dynamic {
            return Ok(vec![resolver.base_uri()]);
        }
        let passed = resolver.dynamic_scope();
        let mut passed: Vec<&Uri<String>> = passed.iter().collect();
        passed.reverse();
        let mut scope: Vec<Arc<Uri<String>>> = Vec::new();
        for uri in passed {
            if !scope.iter().any(|known| **known == *uri) {
                scope.push(Arc::new(uri.clone()));
            }
            if scope.len() > MAX_SCOPE {
                let why = format!("dynamic references pass more than {MAX_SCOPE} addresses");
                return Err(SchemaError::TooLarge(why));
            }
        }
        scope.push(resolver.base_uri());
        Ok(scope)
    }

    fn node(
        &mut self,
        schema: &'s Value,
        resolver: &Resolver<'s>,
        draft: Draft,
    ) -> Result<Node, SchemaError> {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(accepts) => return Ok(Node { is_false: !accepts, ..Node::default() }),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let why = "a reference leads to a value that is neither an object nor a boolean";
                return Err(SchemaError::invalid(why));
            }
        };
        let mut reader = Reader { builder: self, resolver, draft, fields };
        reader.read()
    }
}

/// Reads one subschema.
struct Reader<'b, 's> {
    builder: &'b mut Builder<'s>,
    resolver: &'b Resolver<'s>,
    draft: Draft,
    fields: &'s Map<String, Value>,
}

impl<'s> Reader<'_, 's> {
    fn read(&mut self) -> Result<Node, SchemaError> {
        let mut node = Node::default();
        if let Some(target) = self.reference("$ref")? {
            node.all_of.push(target);
            // Up to draft 7 a reference stands alone.
            if self.draft <= Draft::Draft7 {
                return Ok(node);
            }
        }
        if self.draft == Draft::Draft201909 && self.fields.contains_key("$recursiveRef") {
            let (schema, resolver, draft) = self.resolver.lookup_recursive_ref()?.into_inner();
            node.all_of.push(self.builder.add(schema, resolver, draft)?);
        }
        if self.draft >= Draft::Draft202012 {
            node.all_of.extend(self.reference("$dynamicRef")?);
        }
        node.all_of.extend(self.list("allOf")?.unwrap_or_default());
        node.any_of = self.list("anyOf")?;
        node.one_of = self.list("oneOf")?;
        node.not = self.single("not")?;
        if self.draft >= Draft::Draft7
            && let Some(r#if) = self.single("if")?
        {
            let (then, otherwise) = (self.single("then")?, self.single("else")?);
            node.condition = Some(Condition { r#if, then, otherwise });
        }
        for word in ["dependentSchemas", "dependencies"] {
            if word == "dependencies" || self.is_modern() {
                node.dependent.extend(self.named(word)?);
            }
        }
        self.read_object(&mut node)?;
        self.read_array(&mut node)?;
        node.unique_items = self.fields.get("uniqueItems") == Some(&Value::Bool(true));
        if let Some(pattern) = self.fields.get("pattern") {
            let pattern = pattern.as_str().ok_or_else(|| invalid_keyword("pattern"))?;
            node.pattern = Some(self.builder.keywords.pattern(pattern)?);
        }
        node.assertions = self.builder.keywords.assertions(self.draft, self.fields)?;
        Ok(node)
    }

    fn read_object(&mut self, node: &mut Node) -> Result<(), SchemaError> {
        node.properties = self.named("properties")?.into_iter().collect();
        for (pattern, schema) in self.named("patternProperties")? {
            node.pattern_properties.push((self.builder.keywords.pattern(&pattern)?, schema));
        }
        node.additional_properties = self.single("additionalProperties")?;
        if self.draft >= Draft::Draft6 {
            node.property_names = self.single("propertyNames")?;
        }
        if self.is_modern() {
            node.unevaluated_properties = self.single("unevaluatedProperties")?;
            self.builder.has_unevaluated |= node.unevaluated_properties.is_some();
        }
        Ok(())
    }

    fn read_array(&mut self, node: &mut Node) -> Result<(), SchemaError> {
        if self.draft >= Draft::Draft202012 {
            node.prefix_items = self.list("prefixItems")?.unwrap_or_default();
            node.items = self.single("items")?;
        } else if self.fields.get("items").is_some_and(Value::is_array) {
            node.prefix_items = self.list("items")?.unwrap_or_default();
            node.items = self.single("additionalItems")?;
        } else {
            node.items = self.single("items")?;
        }
        if self.draft >= Draft::Draft6
            && let Some(contained) = self.single("contains")?
        {
            let (min, max) = if self.is_modern() {
                (self.number("minContains"), self.number("maxContains"))
            } else {
                (None, None)
            };
            let evaluates = self.draft >= Draft::Draft202012;
            node.contains =
                Some(Contains { node: contained, min: min.unwrap_or(1), max, evaluates });
        }
        if self.is_modern() {
            node.unevaluated_items = self.single("unevaluatedItems")?;
            self.builder.has_unevaluated |= node.unevaluated_items.is_some();
        }
        Ok(())
    }

    fn is_modern(&self) -> bool {
        self.draft >= Draft::Draft201909
    }

    fn subschema(&mut self, schema: &'s Value) -> Result<NodeId, SchemaError> {
        let draft = self.draft.detect(schema);
        let resolver = self.resolver.in_subresource(draft.create_resource_ref(schema))?;
        self.builder.add(schema, resolver, draft)
    }

    /// The target of a reference.
    fn reference(&mut self, word: &str) -> Result<Option<NodeId>, SchemaError> {
        let Some(target) = self.fields.get(word) else { return Ok(None) };
        let target = target.as_str().ok_or_else(|| invalid_keyword(word))?;
        let (schema, resolver, draft) = self.resolver.lookup(target)?.into_inner();
        self.builder.add(schema, resolver, draft.detect(schema)).map(Some)
    }

    fn single(&mut self, word: &str) -> Result<Option<NodeId>, SchemaError> {
        self.fields.get(word).map(|schema| self.subschema(schema)).transpose()
    }

    fn list(&mut self, word: &str) -> Result<Option<Vec<NodeId>>, SchemaError> {
        let Some(list) = self.fields.get(word) else { return Ok(None) };
        let list = list.as_array().ok_or_else(|| invalid_keyword(word))?;
        list.iter().map(|schema| self.subschema(schema)).collect::<Result<_, _>>().map(Some)
    }

    /// The subschemas of an object by name. Lists of names in `dependencies` are not subschemas.
    fn named(&mut self, word: &str) -> Result<Vec<(String, NodeId)>, SchemaError> {
        let Some(named) = self.fields.get(word) else { return Ok(Vec::new()) };
        let named = named.as_object().ok_or_else(|| invalid_keyword(word))?;
        let schemas =
            named.iter().filter(|(_, schema)| word != "dependencies" || !schema.is_array());
        schemas.map(|(name, schema)| Ok((name.clone(), self.subschema(schema)?))).collect()
    }

    fn number(&self, word: &str) -> Option<u64> {
        let number = self.fields.get(word)?;
        // The meta-schema allows 2.0 for 2.
        number.as_u64().or_else(|| format!("{:.0}", number.as_f64()?).parse().ok())
    }
}

fn invalid_keyword(word: &str) -> SchemaError {
    SchemaError::invalid(format_args!("`{word}` has a value of the wrong type"))
}

impl From<referencing::Error> for SchemaError {
    fn from(error: referencing::Error) -> Self {
        Self::invalid(error)
    }
}
