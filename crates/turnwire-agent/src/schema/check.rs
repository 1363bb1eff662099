//! Checks a value against the graph of a schema, and counts the steps.
//!
//! Results are cached per subschema and value, so a schema that reaches a subschema along many paths costs
//! at most its size times the size of the value.

use super::AnswerError;
use super::graph::{Condition, Contains, Graph, Node, NodeId};
use super::keywords::{are_unique, steps_for};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Instant;

/// The deepest recursion; each level takes stack.
const MAX_RECURSION: usize = 1000;

/// The most cached results.
const MAX_REMEMBERED: usize = 250_000;

/// After how many steps the clock is read.
const STEPS_PER_CLOCK: u64 = 4096;

/// The most errors that are reported.
const MAX_ERRORS: usize = 5;
const MAX_ERROR_BYTES: usize = 2000;

/// Checks values.
pub(crate) struct Checker<'g> {
    graph: &'g Graph,
    max_steps: u64,
    deadline: Instant,
    steps: u64,
    next_clock: u64,
    depth: usize,
    remembered: HashMap<(NodeId, usize), CachedResult>,
}

/// Why a check was aborted.
#[derive(Debug)]
enum CheckLimit {
    Steps,
    Depth,
    Deadline,
}

/// The cached result for a subschema and a value.
#[derive(Clone)]
enum CachedResult {
    /// In progress: the schema refers to itself without descending into the value.
    Open,
    Found(CheckResult),
}

/// Whether a value matches a subschema, and which of its fields or items were evaluated.
#[derive(Clone, Default)]
struct CheckResult {
    is_valid: bool,
    evaluated: Evaluated,
}

/// The evaluated fields of an object or items of an array, one bit each.
#[derive(Clone, Default)]
struct Evaluated(Option<Rc<Vec<u64>>>);

impl Evaluated {
    fn add(&mut self, index: usize) {
        let bits = Rc::make_mut(self.0.get_or_insert_default());
        let word = index / 64;
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        if let Some(word) = bits.get_mut(word) {
            *word |= 1 << (index % 64);
        }
    }

    fn has(&self, index: usize) -> bool {
        let word = self.0.as_ref().and_then(|bits| bits.get(index / 64));
        word.is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    fn merge(&mut self, other: &Self) {
        let Some(more) = &other.0 else { return };
        let Some(bits) = &mut self.0 else {
            self.0.clone_from(&other.0);
            return;
        };
        let bits = Rc::make_mut(bits);
        if bits.len() < more.len() {
            bits.resize(more.len(), 0);
        }
        bits.iter_mut().zip(more.iter()).for_each(|(bits, more)| *bits |= more);
    }

    fn words(&self) -> u64 {
        self.0.as_ref().map_or(0, |bits| u64::try_from(bits.len()).unwrap_or(u64::MAX))
    }
}

/// What is wrong with a value, for people.
#[derive(Default)]
struct Report {
    errors: Vec<String>,
    path: Vec<String>,
    /// What was reported already: the schema may lead there again.
    seen: HashSet<(NodeId, usize)>,
}

impl Report {
    fn add(&mut self, what: impl AsRef<str>) {
        let what = what.as_ref();
        if self.is_full() {
            return;
        }
        let path: String = self.path.iter().flat_map(|part| ["/", part.as_str()]).collect();
        let error = if path.is_empty() { what.to_owned() } else { format!("at {path}: {what}") };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    fn text(self) -> String {
        let mut text = self.errors.join("; ");
        let end = text.floor_char_boundary(MAX_ERROR_BYTES);
        text.truncate(end);
        text
    }
}

impl<'g> Checker<'g> {
    pub(super) fn new(graph: &'g Graph, max_steps: u64, deadline: Instant) -> Self {
        let remembered = HashMap::new();
        Self { graph, max_steps, deadline, steps: 0, next_clock: 0, depth: 0, remembered }
    }

    /// Checks a value.
    pub(crate) fn check(&mut self, value: &Value) -> Result<(), AnswerError> {
        let mismatch = self.find_mismatch(value);
        // Another value may be at the same address.
        self.remembered.clear();
        self.depth = 0;
        let why = match mismatch {
            Ok(None) => return Ok(()),
            Ok(Some(mismatch)) => return Err(AnswerError::Mismatch(mismatch)),
            Err(CheckLimit::Steps) => format!("it takes more than {} steps", self.max_steps),
            Err(CheckLimit::Depth) => "answer and schema are nested too deeply".to_owned(),
            Err(CheckLimit::Deadline) => "it takes too long".to_owned(),
        };
        let why = format!("the answer cannot be checked against its JSON Schema: {why}");
        Err(AnswerError::TooExpensive(why))
    }

    /// What is wrong with a value; `None` if it matches the schema.
    fn find_mismatch(&mut self, value: &Value) -> Result<Option<String>, CheckLimit> {
        if self.apply(0, value, None)?.is_valid {
            return Ok(None);
        }
        let mut report = Report::default();
        self.apply(0, value, Some(&mut report))?;
        if report.errors.is_empty() {
            report.add("it does not match the schema");
        }
        Ok(Some(report.text()))
    }

    /// The steps so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    fn spend(&mut self, steps: u64) -> Result<(), CheckLimit> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.max_steps {
            return Err(CheckLimit::Steps);
        }
        if self.steps >= self.next_clock {
            self.next_clock = self.steps + STEPS_PER_CLOCK;
            if Instant::now() > self.deadline {
                return Err(CheckLimit::Deadline);
            }
        }
        Ok(())
    }

    /// Applies a subschema to a value, or returns the cached result.
    fn apply(
        &mut self,
        id: NodeId,
        value: &Value,
        mut report: Option<&mut Report>,
    ) -> Result<CheckResult, CheckLimit> {
        self.spend(1)?;
        let node = self.graph.node(id);
        let key = (id, std::ptr::from_ref(value) as usize);
        if report.as_mut().is_some_and(|report| report.is_full() || !report.seen.insert(key)) {
            report = None;
        }
        if node.is_shared {
            match self.remembered.get(&key) {
                Some(CachedResult::Found(found)) if found.is_valid || report.is_none() => {
                    return Ok(found.clone());
                }
                Some(CachedResult::Open) => {
                    return Ok(CheckResult { is_valid: true, ..CheckResult::default() });
                }
                Some(CachedResult::Found(_)) | None => {}
            }
        }
        if self.depth >= MAX_RECURSION {
            return Err(CheckLimit::Depth);
        }
        let remembers = node.is_shared && self.remembered.len() < MAX_REMEMBERED;
        if remembers {
            self.remembered.insert(key, CachedResult::Open);
        }
        self.depth += 1;
        let found = self.evaluate(node, value, report)?;
        self.depth -= 1;
        if remembers {
            self.remembered.insert(key, CachedResult::Found(found.clone()));
        }
        Ok(found)
    }

    fn evaluate(
        &mut self,
        node: &'g Node,
        value: &Value,
        report: Option<&mut Report>,
    ) -> Result<CheckResult, CheckLimit> {
        let mut visit =
            Visit { found: CheckResult { is_valid: true, ..CheckResult::default() }, report };
        if node.is_false {
            visit.fail("nothing is allowed here");
            return Ok(visit.found);
        }
        self.assert(node, value, &mut visit)?;
        if visit.is_over() {
            return Ok(visit.found);
        }
        match value {
            Value::Object(fields) => self.apply_to_fields(node, fields, &mut visit)?,
            Value::Array(items) => self.apply_to_items(node, items, &mut visit)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if visit.is_over() {
            return Ok(visit.found);
        }
        self.apply_in_place(node, value, &mut visit)?;
        if visit.is_over() {
            return Ok(visit.found);
        }
        self.apply_to_rest(node, value, &mut visit)?;
        Ok(visit.found)
    }

    /// Checks the keywords for a single value.
    fn assert(
        &mut self,
        node: &Node,
        value: &Value,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        let keywords = &self.graph.keywords;
        if let Some(assertions) = node.assertions.and_then(|index| keywords.assertions.get(index)) {
            self.spend(assertions.steps(value))?;
            if !assertions.is_valid(value) {
                visit.found.is_valid = false;
                if let Some(report) = &mut visit.report {
                    let most = MAX_ERRORS.saturating_sub(report.errors.len());
                    assertions.errors(value, most).iter().for_each(|error| report.add(error));
                }
            }
        }
        if let (Some(pattern), Value::String(text)) =
            (node.pattern.and_then(|index| keywords.patterns.get(index)), value)
        {
            self.spend(pattern.steps(text.len()))?;
            if !pattern.is_match(value) {
                visit.fail("the text does not match `pattern`");
            }
        }
        if let (true, Value::Array(items)) = (node.unique_items, value) {
            self.spend(steps_for(value))?;
            if !are_unique(items) {
                visit.fail("the items are not unique");
            }
        }
        Ok(())
    }

    /// Applies a subschema to a field or an item.
    fn descend(
        &mut self,
        id: NodeId,
        value: &Value,
        name: impl FnOnce() -> String,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        if let Some(report) = &mut visit.report {
            report.path.push(name().replace('~', "~0").replace('/', "~1"));
        }
        let found = self.apply(id, value, visit.report.as_deref_mut())?;
        if let Some(report) = &mut visit.report {
            report.path.pop();
        }
        visit.found.is_valid &= found.is_valid;
        Ok(())
    }

    fn apply_to_fields(
        &mut self,
        node: &'g Node,
        fields: &Map<String, Value>,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        let has_some = !node.properties.is_empty()
            || !node.pattern_properties.is_empty()
            || node.additional_properties.is_some()
            || node.property_names.is_some();
        if !has_some {
            return Ok(());
        }
        for (index, (name, value)) in fields.iter().enumerate() {
            self.spend(1)?;
            let mut is_evaluated = false;
            if let Some(&id) = node.properties.get(name) {
                is_evaluated = true;
                self.descend(id, value, || name.clone(), visit)?;
            }
            if !node.pattern_properties.is_empty() || node.property_names.is_some() {
                let text = Value::String(name.clone());
                for &(pattern, id) in &node.pattern_properties {
                    let Some(pattern) = self.graph.keywords.patterns.get(pattern) else { continue };
                    self.spend(pattern.steps(name.len()))?;
                    if pattern.is_match(&text) {
                        is_evaluated = true;
                        self.descend(id, value, || name.clone(), visit)?;
                    }
                }
                if let Some(id) = node.property_names {
                    self.apply_to_name(id, &text, visit)?;
                }
            }
            if let Some(id) = node.additional_properties.filter(|_| !is_evaluated) {
                is_evaluated = true;
                self.descend(id, value, || name.clone(), visit)?;
            }
            if is_evaluated && self.graph.has_unevaluated {
                visit.found.evaluated.add(index);
            }
            if visit.is_over() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Applies a subschema to the name of a field. Its result is not cached, because the name is not part
    /// of the answer.
    fn apply_to_name(
        &mut self,
        id: NodeId,
        name: &Value,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        let remembered = std::mem::take(&mut self.remembered);
        let found = self.apply(id, name, None);
        self.remembered = remembered;
        if !found?.is_valid {
            visit.fail(&format!("the name {name} is not allowed"));
        }
        Ok(())
    }

    fn apply_to_items(
        &mut self,
        node: &'g Node,
        items: &[Value],
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        if node.items.is_some() || !node.prefix_items.is_empty() {
            for (index, item) in items.iter().enumerate() {
                let Some(id) = node.prefix_items.get(index).copied().or(node.items) else { break };
                self.descend(id, item, || index.to_string(), visit)?;
                if self.graph.has_unevaluated {
                    visit.found.evaluated.add(index);
                }
                if visit.is_over() {
                    return Ok(());
                }
            }
        }
        match &node.contains {
            Some(contains) => self.count_contained(contains, items, visit),
            None => Ok(()),
        }
    }

    fn count_contained(
        &mut self,
        contains: &Contains,
        items: &[Value],
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        let mut count: u64 = 0;
        for (index, item) in items.iter().enumerate() {
            if self.apply(contains.node, item, None)?.is_valid {
                count += 1;
                if contains.evaluates && self.graph.has_unevaluated {
                    visit.found.evaluated.add(index);
                }
            }
        }
        if count < contains.min {
            visit.fail("too few items match `contains`");
        }
        if contains.max.is_some_and(|max| count > max) {
            visit.fail("too many items match `contains`");
        }
        Ok(())
    }

    /// Applies further subschemas to the same value.
    fn apply_in_place(
        &mut self,
        node: &'g Node,
        value: &Value,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        for &id in &node.all_of {
            let found = self.apply(id, value, visit.report.as_deref_mut())?;
            self.merge_result(&found, visit)?;
            if visit.is_over() {
                return Ok(());
            }
        }
        for (name, id) in &node.dependent {
            if value.get(name).is_some() && value.is_object() {
                let found = self.apply(*id, value, visit.report.as_deref_mut())?;
                self.merge_result(&found, visit)?;
            }
        }
        if let Some(condition) = &node.condition {
            self.apply_condition(condition, value, visit)?;
        }
        if visit.is_over() {
            return Ok(());
        }
        if let Some(any_of) = &node.any_of {
            let stop_at = if self.graph.has_unevaluated { usize::MAX } else { 1 };
            if self.count_valid(any_of, value, stop_at, visit)? == 0 {
                visit.fail("it matches none of the schemas in `anyOf`");
            }
        }
        if let Some(one_of) = &node.one_of {
            match self.count_valid(one_of, value, 2, visit)? {
                0 => visit.fail("it matches none of the schemas in `oneOf`"),
                1 => {}
                _ => visit.fail("it matches more than one of the schemas in `oneOf`"),
            }
        }
        if let Some(id) = node.not
            && self.apply(id, value, None)?.is_valid
        {
            visit.fail("it matches the schema in `not`");
        }
        Ok(())
    }

    fn apply_condition(
        &mut self,
        condition: &Condition,
        value: &Value,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        let found = self.apply(condition.r#if, value, None)?;
        let branch = if found.is_valid {
            self.merge_result(&found, visit)?;
            condition.then
        } else {
            condition.otherwise
        };
        if let Some(id) = branch {
            let found = self.apply(id, value, visit.report.as_deref_mut())?;
            self.merge_result(&found, visit)?;
        }
        Ok(())
    }

    /// Counts how many of these match, up to a limit.
    fn count_valid(
        &mut self,
        ids: &[NodeId],
        value: &Value,
        stop_at: usize,
        visit: &mut Visit<'_>,
    ) -> Result<usize, CheckLimit> {
        let mut count = 0;
        for &id in ids {
            let found = self.apply(id, value, None)?;
            if found.is_valid {
                count += 1;
                self.merge_result(&found, visit)?;
            }
            if count >= stop_at {
                break;
            }
        }
        Ok(count)
    }

    /// Merges the result of a subschema for the same value.
    fn merge_result(
        &mut self,
        found: &CheckResult,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        self.spend(found.evaluated.words())?;
        visit.found.is_valid &= found.is_valid;
        if found.is_valid {
            visit.found.evaluated.merge(&found.evaluated);
        }
        Ok(())
    }

    /// Applies `unevaluatedProperties` and `unevaluatedItems` to the rest.
    fn apply_to_rest(
        &mut self,
        node: &'g Node,
        value: &Value,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        match (value, node.unevaluated_properties, node.unevaluated_items) {
            (Value::Object(fields), Some(id), _) => {
                for (index, (name, value)) in fields.iter().enumerate() {
                    self.apply_to_unseen(id, index, value, || name.clone(), visit)?;
                }
            }
            (Value::Array(items), _, Some(id)) => {
                for (index, item) in items.iter().enumerate() {
                    self.apply_to_unseen(id, index, item, || index.to_string(), visit)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_to_unseen(
        &mut self,
        id: NodeId,
        index: usize,
        value: &Value,
        name: impl FnOnce() -> String,
        visit: &mut Visit<'_>,
    ) -> Result<(), CheckLimit> {
        self.spend(1)?;
        if visit.found.evaluated.has(index) {
            return Ok(());
        }
        visit.found.evaluated.add(index);
        self.descend(id, value, name, visit)
    }
}

/// A subschema being applied to a value.
struct Visit<'r> {
    found: CheckResult,
    report: Option<&'r mut Report>,
}

impl Visit<'_> {
    fn fail(&mut self, what: &str) {
        self.found.is_valid = false;
        if let Some(report) = &mut self.report {
            report.add(what);
        }
    }

    /// Whether the rest does not matter: it failed, and no further errors are needed.
    fn is_over(&self) -> bool {
        !self.found.is_valid && self.report.is_none()
    }
}
