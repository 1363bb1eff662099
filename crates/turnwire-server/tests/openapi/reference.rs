//! `docs/api.md` names every route and nothing else, with the query parameters and scopes of `/openapi.json`.

use crate::contract::document;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");

/// A route as the page names it, such as `GET /v1/sessions?q=&limit=`.
struct Mention {
    /// `GET /v1/sessions`
    route: String,
    query: Vec<String>,
    /// The number of the section.
    section: usize,
}

/// The page, as far as routes are concerned.
struct Page {
    mentions: Vec<Mention>,
    /// For each section, the words in backquotes.
    sections: Vec<Vec<String>>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self { mentions: Vec::new(), sections: vec![Vec::new()] };
        let mut is_code = false;
        // The table of scopes describes no route.
        let mut is_scopes = false;
        for line in text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            } else if line.starts_with("## ") {
                page.sections.push(Vec::new());
                is_scopes = line == "## Scopes";
            } else if !is_code && !is_scopes {
                line.split('`').skip(1).step_by(2).for_each(|code| page.add(code));
            }
        }
        page
    }

    fn add(&mut self, code: &str) {
        let section = self.sections.len() - 1;
        self.sections[section].push(code.to_owned());
        let Some((method, target)) = code.split_once(' ') else { return };
        if !["GET", "POST", "PATCH", "DELETE"].contains(&method) || !target.starts_with('/') {
            return;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let names = query.split('&').map(|part| part.split('=').next().unwrap_or(part));
        let query = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        self.mentions.push(Mention { route: format!("{method} {path}"), query, section });
    }

    /// Whether a parameter of a route is described in a section that names the route.
    fn describes(&self, route: &str, parameter: &str) -> bool {
        let starts = [format!("{parameter}="), format!("?{parameter}=")];
        self.mentions.iter().filter(|mention| mention.route == route).any(|mention| {
            let mut words = self.sections[mention.section].iter();
            mention.query.iter().any(|name| name == parameter)
                || words.any(|word| starts.iter().any(|start| word.starts_with(start)))
        })
    }
}

/// The routes of the document, by method and path.
fn operations(document: &Value) -> BTreeMap<String, &Value> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| {
            (format!("{} {path}", method.to_uppercase()), operation)
        })
    });
    each.collect()
}

fn query_names(operation: &Value) -> BTreeSet<&str> {
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let query = parameters.iter().filter(|parameter| parameter["in"] == "query");
    query.map(|parameter| parameter["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_reference_names_every_route_and_no_other() {
    let (document, page) = (document().await, Page::read(&std::fs::read_to_string(FILE).unwrap()));
    let routes: BTreeSet<String> = operations(&document).into_keys().collect();
    let named: BTreeSet<String> = page.mentions.iter().map(|it| it.route.clone()).collect();
    let missing: Vec<_> = routes.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&routes).collect();
    assert!(missing.is_empty(), "docs/api.md does not name {missing:?}");
    assert!(unknown.is_empty(), "docs/api.md names routes that do not exist: {unknown:?}");
}

#[tokio::test]
async fn the_reference_names_every_query_parameter_and_no_other() {
    let (document, page) = (document().await, Page::read(&std::fs::read_to_string(FILE).unwrap()));
    let mut problems = Vec::new();
    for (route, operation) in operations(&document) {
        let known = query_names(operation);
        for name in known.iter().filter(|name| !page.describes(&route, name)) {
            problems.push(format!("{route} has `{name}=`, which docs/api.md does not describe"));
        }
        for mention in page.mentions.iter().filter(|mention| mention.route == route) {
            for name in mention.query.iter().filter(|name| !known.contains(name.as_str())) {
                problems.push(format!("{route} has no `{name}=`, but docs/api.md says so"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The table of routes by scope, as `docs/api.md` has it between two lines.
#[tokio::test]
async fn the_reference_has_the_scopes_of_every_route() {
    const BEGIN: &str = "| scope | routes |\n|---|---|\n";
    let document = document().await;
    let mut by_scope: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (route, operation) in operations(&document) {
        let scope = operation["description"].as_str().unwrap_or("Scope: none.");
        let scope = scope.trim_start_matches("Scope: ").trim_end_matches('.');
        by_scope.entry(scope.to_owned()).or_default().push(format!("`{route}`"));
    }
    let mut table = String::new();
    for (scope, routes) in &by_scope {
        let _ = writeln!(table, "| {scope} | {} |", routes.join(", "));
    }
    let page = std::fs::read_to_string(FILE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/api.md has the table of scopes");
    let rows = rest.split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let end = rows.map(str::len).sum();
    let (found, after) = rest.split_at(end);
    if found == table {
        return;
    }
    if std::env::var_os("TURNWIRE_WRITE").is_some() {
        std::fs::write(FILE, format!("{before}{BEGIN}{table}{after}")).unwrap();
        return;
    }
    panic!(
        "scopes have changed: TURNWIRE_WRITE=1 cargo test -p turnwire-server --test openapi writes the table of \
         docs/api.md anew:\n{table}"
    );
}

/// The clients have a method for every route of a session, except for a reply that another program streams in.
#[tokio::test]
async fn the_clients_know_every_route_of_a_session() {
    let document = document().await;
    for folder in ["typescript/src", "python/python/turnwire/_async"] {
        let path = format!("{}/../../clients/{folder}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file());
        let source: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for (path, _) in document["paths"].as_object().unwrap() {
            let Some(rest) = path.strip_prefix("/v1/sessions/{s}/") else { continue };
            let name = rest.rsplit('/').find(|part| !part.starts_with('{')).unwrap();
            let forms = [format!("/{name}"), format!("\"{name}\"")];
            let is_known = name == "replies" || forms.iter().any(|form| source.contains(form));
            assert!(is_known, "clients/{folder} does not know {path}");
        }
    }
}

#[test]
fn every_command_of_the_reference_is_run_by_an_example() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/curl");
    let scripts = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let scripts = scripts.filter(|path| path.extension().is_some_and(|end| end == "sh"));
    let examples: Vec<String> =
        scripts.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let page = std::fs::read_to_string(FILE).unwrap();
    let commands: Vec<&str> = page
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("\n```")?.0))
        .collect();
    assert!(commands.len() > 5);
    for command in commands {
        assert!(examples.iter().any(|example| example.contains(command)), "{command}");
    }
}

#[test]
fn every_link_of_the_reference_leads_somewhere() {
    let page = std::fs::read_to_string(FILE).unwrap();
    let headings = page.lines().filter(|line| line.starts_with("##"));
    let anchors: BTreeSet<String> = headings
        .map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"))
        .collect();
    for link in page.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let exists = std::path::Path::new(FILE).with_file_name(file).exists();
        let leads = if file.is_empty() { anchors.contains(anchor) } else { exists };
        assert!(leads, "{link}");
    }
}
