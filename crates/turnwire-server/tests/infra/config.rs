//! Settings: errors name the line.

use turnwire_server::config::{Config, LinksConfig, LogFormat, ModelRef, Overrides, StoreUrl};

fn error(text: &str) -> String {
    Config::parse("turnwire.toml", text).unwrap_err().to_string()
}

#[test]
fn a_mistake_is_named_with_its_line_its_key_and_what_is_expected() {
    for (text, expected) in [
        ("lisen = \"x\"", vec!["turnwire.toml:1:1: lisen: ", "did you mean `listen`?"]),
        ("\n\nlisten = \"nowhere\"", vec!["turnwire.toml:3:10: listen: ", "127.0.0.1:4747"]),
        ("listen = 4747", vec!["turnwire.toml:1:10: listen: ", "an address such as"]),
        ("[limits]\nbody = \"16 megs\"", vec!["turnwire.toml:2:8: limits.body: ", "16 MiB"]),
        ("[limits]\nbody = -1", vec!["turnwire.toml:2:8: limits.body: ", "a size such as"]),
        ("[limits]\nbodi = 1", vec!["turnwire.toml:2:1: limits.bodi: ", "did you mean `body`?"]),
        ("[limits]\nheartbeat = \"soon\"", vec!["turnwire.toml:2:13: limits.heartbeat: ", "30s"]),
        (
            "[limits]\nheartbeat = \"0s\"",
            vec!["turnwire.toml:2:1: limits.heartbeat: must be more than 0"],
        ),
        (
            "[links]\nfetsch = true",
            vec!["turnwire.toml:2:1: links.fetsch: ", "did you mean `fetch`?"],
        ),
        ("[links]\ntypes = [\"pictures\"]", vec!["turnwire.toml:2:10: links.types: ", "image/*"]),
        ("[links]\ntypes = []", vec!["turnwire.toml:2:1: links.types: must not be empty"]),
        ("[links]\nat_once = 0", vec!["turnwire.toml:2:1: links.at_once: must be at least 1"]),
        (
            "[links]\nat_once_per_tenant = 0",
            vec!["turnwire.toml:2:1: links.at_once_per_tenant: must be at least 1"],
        ),
        (
            "[links]\ntimeout = \"0s\"",
            vec!["turnwire.toml:2:1: links.timeout: must be more than 0"],
        ),
        (
            "[limits]\nbody_rate = 0",
            vec!["turnwire.toml:2:1: limits.body_rate: must be at least 1"],
        ),
        (
            "[limits]\nbuffered_per_tenant = \"1 MiB\"",
            vec!["turnwire.toml:2:1: limits.buffered_per_tenant: must be at least `body`"],
        ),
        (
            "[limits]\nbuffered = \"100 MiB\"",
            vec!["turnwire.toml:2:1: limits.buffered: must be at least `buffered_per_tenant`"],
        ),
        (
            "[limits]\nuploads_per_tenant = \"1 MiB\"",
            vec!["turnwire.toml:2:1: limits.uploads_per_tenant: must be at least `blob`"],
        ),
        (
            "[limits]\nuploads = \"100 MiB\"",
            vec!["turnwire.toml:2:1: limits.uploads: must be at least `uploads_per_tenant`"],
        ),
        (
            "[retention]\nblobs = \"1m\"",
            vec![
                "turnwire.toml:2:1: retention.blobs: must be at least 10m",
                "0s keeps blobs forever",
            ],
        ),
        (
            "[limits]\nheaders = 12",
            vec!["turnwire.toml:2:1: limits.headers: must be at least 1024"],
        ),
        (
            "store = \"mysql://x\"",
            vec![
                "turnwire.toml:1:9: store: ",
                "sqlite:PATH",
                "postgres://USER:PASSWORD@HOST/DATABASE",
            ],
        ),
        ("origins = [\"*\"]", vec!["turnwire.toml:1:12: origins: ", "list each site"]),
        ("[tls]\ncert = \"a.pem\"", vec!["turnwire.toml:1:1: tls: ", "missing field `key`"]),
        (
            "[log]\nformat = \"xml\"",
            vec!["turnwire.toml:2:10: log.format: ", "unknown variant `xml`"],
        ),
        (
            "default_agent = \"friday\"",
            vec!["turnwire.toml:1:1: default_agent: ", "demo, external"],
        ),
        ("[agents.a]\nmodel = \"gpt\"", vec!["turnwire.toml:2:9: agents.a.model: ", "WIRE:MODEL"]),
        (
            "[agents.a]\nmodel = \"demo\"\n[[agents.a.permissions]]\ntool = \"x\"\nbehavior = \"asc\"",
            vec!["turnwire.toml:5:12: agents.a.permissions.behavior: ", "did you mean `ask`?"],
        ),
        ("[mcp.files]", vec!["turnwire.toml:1:6: mcp.files: ", "`command`"]),
        (
            "[[auth.tokens]]\ntenant = \"a\"\nsha256 = \"abc\"\nscopes = [\"read\"]",
            vec!["turnwire.toml:3:10: auth.tokens.sha256: ", "turnwire token new"],
        ),
        (
            "[auth.jwt]\nalgorithm = \"RS256\"\nissuer = \"i\"\naudience = \"a\"",
            vec!["turnwire.toml:2:1: auth.jwt.algorithm: ", "public_key_file"],
        ),
        (
            "[auth.jwt]\nalgorithm = \"none\"\nissuer = \"i\"\naudience = \"a\"",
            vec!["turnwire.toml:2:13: auth.jwt.algorithm: ", "HS256"],
        ),
        (
            "listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
            vec!["turnwire.toml:2:1: ", "duplicate key"],
        ),
        ("listen = ", vec!["turnwire.toml:1:"]),
    ] {
        let error = error(text);
        for part in expected {
            assert!(error.contains(part), "{text}\n gives {error}\n without {part}");
        }
    }
}

#[test]
fn all_mistakes_of_a_file_are_named_at_once_in_its_order_and_each_once() {
    let text = "lisen = \"x\"\ndefault_agent = \"nobody\"\n[agents.a]\nmodel = \"gpt\"\ncolour = 1\n\
        [agents.b]\nmodell = \"demo\"\n[limits]\nbody = -3\nheartbeat = \"0s\"\n";
    let error = error(text);
    let keys: Vec<&str> = error.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    let places: Vec<&str> = error.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "lisen",
            "default_agent",
            "agents.a.model",
            "agents.a.colour",
            "agents.b.modell",
            "limits.body",
            "limits.heartbeat"
        ],
        "{error}"
    );
    let lines = [1, 2, 4, 5, 7, 9, 10];
    for (place, line) in places.iter().zip(lines) {
        assert!(place.starts_with(&format!("turnwire.toml:{line}:")), "{error}");
    }
}

#[test]
fn the_only_agent_of_the_settings_is_the_default_agent() {
    for (text, expected) in [
        ("", "demo"),
        ("[agents.a]\nmodel = \"demo\"", "a"),
        ("[agents.a]\nmodel = \"demo\"\n[agents.b]\nmodel = \"demo\"", "demo"),
        ("default_agent = \"external\"\n[agents.a]\nmodel = \"demo\"", "external"),
    ] {
        assert_eq!(Config::parse("test", text).unwrap().default_agent(), expected, "{text}");
    }
}

#[test]
fn a_second_token_is_found_in_its_own_line() {
    let hash = "0".repeat(64);
    let token = |tenant: &str| {
        format!(
            "[[auth.tokens]]\ntenant = \"{tenant}\"\nsha256 = \"{hash}\"\nscopes = [\"read\"]\n"
        )
    };
    let error = error(&(token("a") + &token("b/c")));
    assert!(error.contains("turnwire.toml:6:1: auth.tokens.1.tenant: a tenant is"), "{error}");
    assert!(
        error.contains("turnwire.toml:3:1: auth.tokens.0.sha256: this token is listed twice"),
        "{error}"
    );
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    for text in [
        "[agents.a]\nmodel = \"demo\"\napi_key = \"sk-secret\"",
        "[auth.jwt]\nsecret = \"sk-secret\"",
        "store = \"postgre://user:sk-secret@host/database\"",
        "[[auth.tokens]]\ntenant = \"a\"\nsha256 = \"sk-secret\"\nscopes = []",
    ] {
        let error = error(text);
        assert!(!error.contains("sk-secret"), "{error}");
    }
}

#[test]
fn the_example_is_good_and_says_the_defaults() {
    let text = include_str!("../../../../turnwire.example.toml");
    let config = Config::parse("turnwire.example.toml", text).unwrap();
    assert_eq!(
        format!("{config:?}"),
        format!("{:?}", Config::default()),
        "all of it is commented out"
    );
    // Settings that are commented out with `#key` must be valid, too; prose has a space after the
    // `#`.
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with([' ', '#']) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let config = Config::parse("turnwire.example.toml", &uncommented).unwrap();
    assert_eq!(config.agents.len(), 2);
    let links = |config: &Config| {
        let LinksConfig { fetch, leave, types, size, timeout, .. } = &config.links;
        format!("{fetch} {leave:?} {types:?} {size:?} {timeout:?}")
    };
    assert_eq!(links(&config), links(&Config::default()));
    assert!(uncommented.contains("\n[limits]\n") && uncommented.contains("\n[[auth.tokens]]\n"));
}

#[test]
fn the_environment_wins_over_the_file() {
    let mut config =
        Config::parse("test", "listen = \"127.0.0.1:1\"\nstore = \"sqlite:a\"").unwrap();
    let env = |name: &str| match name {
        "TURNWIRE_LISTEN" => Some("127.0.0.1:2".to_owned()),
        "TURNWIRE_STORE" => Some("memory:".to_owned()),
        "TURNWIRE_ORIGINS" => Some("https://a.example, https://b.example".to_owned()),
        "TURNWIRE_BEHIND_PROXY" => Some("1".to_owned()),
        "TURNWIRE_LOG_FORMAT" => Some("json".to_owned()),
        _ => None,
    };
    config.apply(Overrides::from_env(env).unwrap()).unwrap();
    assert_eq!(config.listen.0.port(), 2);
    assert_eq!(config.store, Some(StoreUrl::Memory));
    assert_eq!(config.origins.len(), 2);
    assert!(config.behind_proxy);
    assert_eq!(config.log.format, LogFormat::Json);
    let wrong = |name: &'static str| {
        Overrides::from_env(move |asked| (asked == name).then(|| "rubbish!".to_owned()))
            .unwrap_err()
            .to_string()
    };
    for name in [
        "TURNWIRE_LISTEN",
        "TURNWIRE_STORE",
        "TURNWIRE_ORIGINS",
        "TURNWIRE_HOSTS",
        "TURNWIRE_BEHIND_PROXY",
        "TURNWIRE_LOG_FORMAT",
        "TURNWIRE_PUBLIC_URL",
    ] {
        assert!(wrong(name).starts_with(name), "{}", wrong(name));
    }
}

#[test]
fn files_are_looked_for_beside_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turnwire.toml");
    std::fs::write(
        &path,
        "store = \"sqlite:data.db\"\n[tls]\ncert = \"c.pem\"\nkey = \"/abs/k.pem\"\n",
    )
    .unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.store, Some(StoreUrl::Sqlite(folder.path().join("data.db"))));
    let tls = config.tls.unwrap();
    assert_eq!(tls.cert, folder.path().join("c.pem"));
    assert_eq!(tls.key, std::path::Path::new("/abs/k.pem"));
    let missing = Config::load(&folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml: cannot be read"), "{missing}");
}

#[test]
fn an_agent_is_read_with_all_its_keys() {
    let text = "default_agent = \"a\"\n[agents.a]\nmodel = \"demo\"\nsystem = \"You are A.\"\n\
        tools = [\"mcp:files/*\", \"external:open_page\", \"agent:b\"]\nmax_iterations = 3\n\
        approval_timeout = \"5m\"\non_restart = \"stop\"\n[agents.b]\nmodel = \"demo\"\n\
        [mcp.files]\ncommand = [\"files\"]\n[external_tools.open_page]\ndescription = \"\"\n\
        input = { type = \"object\" }\n";
    let config = Config::parse("test", text).unwrap();
    let agent = &config.agents["a"];
    assert_eq!(agent.model, ModelRef::Demo);
    assert_eq!((agent.tools.len(), agent.max_iterations), (3, 3));
    assert_eq!(agent.approval_timeout.0.as_secs(), 300);
}

/// Two valid agents, with room for more lines in the first.
fn with(lines: &str) -> String {
    format!(
        "[agents.b]\nmodel = \"openai:b\"\n[external_tools.open]\ndescription = \"\"\n\
         input = {{ type = \"object\" }}\n[agents.a]\nmodel = \"anthropic:a\"\n{lines}"
    )
}

#[test]
fn what_an_agent_names_has_to_be_there() {
    for (lines, expected) in [
        (
            "tools = [\"agent:b\", \"agent:c\"]",
            "turnwire.toml:8:21: agents.a.tools.1: \"agent:c\" matches no other agent; there are b",
        ),
        (
            "tools = [\"external:shut*\"]",
            ":8:10: agents.a.tools.0: \"external:shut*\" matches no client tool; there are open",
        ),
        (
            "tools = [\"mcp:files/*\"]",
            ":8:10: agents.a.tools.0: \"mcp:files/*\" matches no MCP server; there is no [mcp.NAME]",
        ),
        ("tools = [\"files/*\"]", ":8:9: agents.a.tools: invalid tool \"files/*\""),
        (
            "tools = [\"agent:a\"]",
            ":8:1: agents.a.tools: these agents call each other without end: a → a",
        ),
        (
            "tools = [\"agent:c\"]\n[agents.c]\nmodel = \"demo\"\ntools = [\"agent:*\"]",
            ":8:1: agents.a.tools: these agents call each other without end: a → c → a",
        ),
        (
            "tools = [\"agent:open\", \"external:open\"]\n[agents.open]\nmodel = \"demo\"",
            ":8:24: agents.a.tools.1: \"open\" is both a client tool and an agent",
        ),
        ("fallback = \"demo\"", ":8:1: agents.a.fallback: the built-in model \"demo\""),
        ("fallback = \"gpt\"", ":8:12: agents.a.fallback: invalid model \"gpt\""),
        (
            "fallback = { model = \"openai:x\", api_key = \"k\" }",
            "agents.a.fallback.api_key: unknown field `api_key`",
        ),
        (
            "api_key_env = \"A\"\napi_key_file = \"b\"",
            ":9:1: agents.a.api_key_file: set either `api_key_env` or `api_key_file`",
        ),
        ("temperature = 3.5", ":8:1: agents.a.temperature: must be from 0 to 2"),
        ("max_tokens = 0", ":8:1: agents.a.max_tokens: must be at least 1"),
        (
            "timeouts = { first_token = \"0s\" }",
            ":8:14: agents.a.timeouts.first_token: must be more than 0",
        ),
        (
            "price_per_million = { input = -1, output = 2.0 }",
            ":8:23: agents.a.price_per_million.input: must be 0 or more",
        ),
        (
            "permissions = [{ tool = \"x\", input = { path = 1 }, behavior = \"ask\" }]",
            "agents.a.permissions.input.path: ",
        ),
        (
            "permissions = [{ tool = \"a**\", behavior = \"ask\" }]",
            "agents.a.permissions.tool: \"a**\": `**` has to be a whole segment",
        ),
        (
            "permissions = [{ tool = \"x\", input = { p = \"src/*\" }, behavior = \"ask\" }]",
            "agents.a.permissions.input.p: invalid pattern \"src/*\": \"src/*\" may be a path",
        ),
        (
            "permissions = [{ tool = \"x\", input = { p = \"/tmp/../x\" }, behavior = \"ask\" }]",
            "agents.a.permissions.input.p: invalid pattern \"/tmp/../x\": a path has no empty segment",
        ),
        (
            "permissions = [{ tool = \"x\", input = { p = { url = \"x\" } }, behavior = \"ask\" }]",
            "invalid pattern \"x\": a URL begins with its scheme",
        ),
        (
            "permissions = [{ tool = \"x\", input = { p = { glob = \"x\" } }, behavior = \"ask\" }]",
            "unknown variant `glob`",
        ),
        ("tools = [\"mcp:a**/b\"]", "agents.a.tools: invalid tool \"mcp:a**/b\""),
        (
            "[external_tools.\"a b\"]\ndescription = \"\"\ninput = {}",
            ":8:17: external_tools.a b: invalid tool name",
        ),
    ] {
        let found = match Config::parse("turnwire.toml", &with(lines)) {
            Err(error) => error.to_string(),
            Ok(_) => "nothing".to_owned(),
        };
        assert!(found.contains(expected), "{lines}\n gives {found}\n and not {expected}");
    }
}

#[test]
fn what_can_be_used_and_may_be_meant_otherwise_is_a_warning() {
    let warnings = |lines: &str| -> Vec<String> {
        let config = Config::parse("turnwire.toml", &with(lines)).unwrap();
        let env = |name: &str| (name == "SET").then(|| "sk-secret".to_owned());
        config.warnings(env).iter().map(ToString::to_string).collect()
    };
    assert_eq!(warnings("api_key_env = \"SET\""), [""; 0]);
    for (lines, expected) in [
        ("api_key_env = \"UNSET\"", ":8:1: agents.a.api_key_env: UNSET is not set"),
        (
            "api_key_file = \"/no/such/key\"",
            ":8:1: agents.a.api_key_file: /no/such/key cannot be read",
        ),
        (
            "api_key_env = \"SET\"\nbase_url = \"http://models.example\"",
            ":9:1: agents.a.base_url: without https",
        ),
        (
            "fallback = { model = \"openai:x\", api_key_env = \"UNSET\" }",
            ":8:34: agents.a.fallback.api_key_env: UNSET is not set",
        ),
        (
            "price_per_million = { input = 1, output = 2 }\nfallback = \"openai:y\"",
            ":9:1: agents.a.fallback: \"openai:y\" has no price_per_million",
        ),
        (
            "permissions = [{ tool = \"opne\", behavior = \"deny\" }]",
            "agents.a.permissions.0.tool: \"opne\" matches none",
        ),
        (
            "api_key_env = \"SET\"\n[links]\nfiles = \"/no/such/folder\"",
            ":10:1: links.files: there is no folder /no/such/folder",
        ),
        (
            "[agents.d]\nmodel = \"demo\"\nsystem = \"You\"",
            ":10:1: agents.d.system: this has no effect with the built-in model \"demo\"",
        ),
    ] {
        let found = warnings(lines);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{lines}\n gives {found:?}\n and not {expected}"
        );
    }
    let near = "api_key_env = \"SET\"\nbase_url = \"http://127.0.0.1:1\"\ntools = [\"external:*\"]\n\
        permissions = [{ tool = \"op*\", behavior = \"ask\" }]";
    assert_eq!(warnings(near), [""; 0]);
    // Prices for both, for none, or for the same model elsewhere.
    let prices = "price_per_million = { input = 1, output = 2 }";
    for lines in [
        format!("{prices}\nfallback = {{ model = \"openai:y\", {prices} }}"),
        "fallback = \"openai:y\"".to_owned(),
        format!(
            "{prices}\nfallback = {{ model = \"anthropic:a\", base_url = \"https://m.example\" }}"
        ),
    ] {
        assert_eq!(warnings(&lines), [""; 0], "{lines}");
    }
}

#[test]
fn tokens_cost_what_the_settings_say() {
    use turnwire_core::event::TokenCounts;
    let cost = |model: &str, asked: Option<&str>| {
        let text = format!(
            "[agents.a]\nmodel = \"{model}\"\n\
             price_per_million = {{ input = 2.0, output = 8, cache_input = 0.5 }}\n\
             [agents.a.fallback]\nmodel = \"anthropic:y\"\n\
             price_per_million = {{ input = 1.0, output = 4.0, cache_input = 0.1 }}"
        );
        let tokens = TokenCounts {
            input_tokens: 3_000_000,
            output_tokens: 1_000_000,
            cache_input_tokens: 2_000_000,
            cache_creation_input_tokens: 0,
        };
        Config::parse("test", &text).unwrap().agents["a"].cost(asked, tokens)
    };
    // Cached tokens are part of the input tokens, except for Anthropic.
    let is = |cost: Option<f64>, expected: f64| (cost.unwrap() - expected).abs() < 1e-9;
    assert!(is(cost("openai:x", None), 11.0));
    assert!(is(cost("anthropic:x", Some("anthropic:x")), 15.0));
    // The fallback model has its own prices, and its own way to count.
    assert!(is(cost("openai:x", Some("anthropic:y")), 7.2));
    assert!(is(cost("openai:x", Some("gpt-mini-2026")), 11.0));
    let plain = "[agents.a]\nmodel = \"openai:x\"\nfallback = \"openai:y\"\n\
                 price_per_million = { input = 1, output = 1 }";
    let plain = Config::parse("test", plain).unwrap();
    let tokens = TokenCounts { input_tokens: 1, ..TokenCounts::default() };
    assert_eq!(plain.agents["a"].cost(Some("openai:y"), tokens), None, "nobody knows its price");
}
