//! Patterns for URLs: parsed as browsers do (WHATWG), and compared part by part.

use super::MatchResult;
use super::glob::{DoubleStar, Glob, MAX_PATTERN_BYTES, Segments};
use super::normalize::{decode_percent, fold_case, normalize_segment};
use super::pattern::PatternError;
use url::{Host, Url};

/// A pattern for a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlPattern {
    /// `None`: any.
    scheme: Option<String>,
    host: HostPattern,
    port: PortPattern,
    path: Segments,
    loose_path: Segments,
    query: QueryPattern,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// Any host, or none.
    Any,
    /// This host, as the parser writes it.
    Exact(String),
    /// A domain, label by label.
    Labels { strict: Segments, loose: Segments },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortPattern {
    /// The default port of the scheme.
    Default,
    Any,
    Exact(u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum QueryPattern {
    None,
    Any,
    Like(Glob),
}

impl UrlPattern {
    pub(super) fn new(text: &str) -> Result<Self, PatternError> {
        let fail = |why: &str| Err(PatternError::new(why));
        if text.len() > MAX_PATTERN_BYTES {
            return fail("a pattern has at most 1024 bytes");
        }
        if text.chars().any(|letter| letter.is_control() || letter.is_whitespace())
            || text.contains(['\\', '#'])
        {
            return fail("a URL has no spaces, control characters, backslashes or fragment");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return fail("a URL begins with its scheme: `https://HOST/PATH`, or `*://HOST/PATH`");
        };
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let scheme = match scheme {
            "*" => None,
            "" => return fail("a URL begins with its scheme: `https://HOST/PATH`"),
            scheme if scheme.bytes().all(is_scheme) => Some(scheme.to_ascii_lowercase()),
            _ => return fail("a scheme is a name such as `https`, or `*` for any"),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let (host, port) = host_and_port(authority)?;
        let segments: Vec<String> = path.split('/').skip(1).map(normalize_segment).collect();
        let last = segments.len().saturating_sub(1);
        let is_odd = |(at, segment): (usize, &String)| {
            matches!(segment.as_str(), "." | "..") || (segment.is_empty() && at < last)
        };
        if segments.iter().enumerate().any(is_odd) {
            return fail("the path of a URL has no empty segment, no `.` and no `..`");
        }
        let segments = if segments.is_empty() { vec![String::new()] } else { segments };
        let path =
            Segments::new(segments.iter().map(String::as_str), DoubleStar::OneOrMoreAtTheEnd)?;
        let query = match query {
            Some(query) => QueryPattern::Like(Glob::new(query)),
            None if path.ends_with_double_star() => QueryPattern::Any,
            None => QueryPattern::None,
        };
        // Many servers ignore a slash at the end.
        let trimmed = segments.iter().map(String::as_str).filter(|segment| !segment.is_empty());
        let loose_path = Segments::new(trimmed, DoubleStar::OneOrMoreAtTheEnd)?
            .loosened(|literal| fold_case(&decode_percent(literal)));
        Ok(Self { scheme, host, port, path, loose_path, query })
    }

    pub(super) fn match_value(&self, value: &str) -> MatchResult {
        let is_odd = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\';
        if value.chars().any(is_odd) {
            // Programs parse this differently.
            return MatchResult::Unsure;
        }
        let Ok(url) = Url::parse(value) else { return MatchResult::Unsure };
        if url.cannot_be_a_base() {
            return MatchResult::Unsure;
        }
        if !self.could_be(value, &url) {
            return MatchResult::No;
        }
        if self.is_certainly(value, &url) { MatchResult::Yes } else { MatchResult::Unsure }
    }

    /// Whether every program reads the value as a matching URL.
    fn is_certainly(&self, value: &str, url: &Url) -> bool {
        let Some(raw) = RawUrl::new(value) else { return false };
        let host = url.host_str().unwrap_or_default();
        let is_plain_host =
            raw.host.trim_end_matches('.').eq_ignore_ascii_case(host.trim_end_matches('.'));
        let is_plain_path = raw.path.split('/').skip(1).all(is_plain_segment)
            && !raw.path.trim_end_matches('/').contains("//")
            && !raw.path.ends_with("//");
        let port = match self.port {
            PortPattern::Any => true,
            PortPattern::Default => url.port().is_none(),
            PortPattern::Exact(port) => url.port_or_known_default() == Some(port),
        };
        let query = match &self.query {
            QueryPattern::Any => true,
            QueryPattern::None => url.query().is_none(),
            QueryPattern::Like(glob) => url.query().is_some_and(|query| glob.matches(query)),
        };
        let segments: Vec<String> = url.path().split('/').skip(1).map(normalize_segment).collect();
        is_plain_host
            && is_plain_path
            && port
            && query
            && self.host.matches(url, Strictness::Strict)
            && self.path.matches(&segments)
    }

    /// Whether some program could read the value as a matching URL.
    fn could_be(&self, value: &str, url: &Url) -> bool {
        let scheme = self.scheme.as_deref().is_none_or(|scheme| scheme == url.scheme());
        let port = match self.port {
            // A denied host is denied on every port.
            PortPattern::Any | PortPattern::Default => true,
            PortPattern::Exact(port) => url.port_or_known_default() == Some(port),
        };
        let query = match &self.query {
            QueryPattern::Any | QueryPattern::None => true,
            QueryPattern::Like(glob) => {
                let glob =
                    glob.loosened().map_literals(|literal| fold_case(&decode_percent(literal)));
                glob.matches(&fold_case(&decode_percent(url.query().unwrap_or_default())))
            }
        };
        // Programs that do not resolve `..` send it as written.
        let raw = RawUrl::new(value).map_or_else(|| url.path(), |raw| raw.path);
        scheme
            && port
            && query
            && self.host.matches(url, Strictness::Loose)
            && [url.path(), raw].iter().any(|path| self.loose_path.matches(&loose_segments(path)))
    }
}

fn host_and_port(authority: &str) -> Result<(HostPattern, PortPattern), PatternError> {
    if authority.contains('@') {
        return Err(PatternError::new("a URL in a rule has no user name and no password"));
    }
    let after_brackets = authority.rfind(']').unwrap_or(0);
    let colon = authority.rfind(':').filter(|at| *at >= after_brackets);
    let (host, port) = match colon {
        Some(at) => (authority.get(..at).unwrap_or_default(), authority.get(at + 1..)),
        None => (authority, None),
    };
    let port = match port {
        None => PortPattern::Default,
        Some("*") => PortPattern::Any,
        Some(port) => PortPattern::Exact(
            port.parse().map_err(|_| PatternError::new("a port is a number, or `*` for any"))?,
        ),
    };
    let host = match host {
        "**" => HostPattern::Any,
        "" => HostPattern::Exact(String::new()),
        host if host.contains('*') => {
            let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte);
            if !host.bytes().all(is_label) {
                return Err(PatternError::new(
                    "a host with `*` has letters, digits, `-` and dots; others are written in \
                     their ASCII form (`xn--…`)",
                ));
            }
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            let strict = Segments::new(host.split('.'), DoubleStar::OneOrMore)?;
            let loose = strict.with_wide_stars();
            HostPattern::Labels { strict, loose }
        }
        host => {
            let parsed = Host::parse(host)
                .map_err(|why| PatternError::new(format!("invalid host `{host}`: {why}")))?;
            HostPattern::Exact(canonical_host(&parsed))
        }
    };
    Ok((host, port))
}

/// A canonical host: an IPv4 address inside an IPv6 address is that IPv4 address.
fn canonical_host<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => address.to_string(),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Strict,
    Loose,
}

impl HostPattern {
    fn matches(&self, url: &Url, is_strict: Strictness) -> bool {
        // For other schemes the parser does not parse the host.
        let host = match url.host() {
            Some(Host::Domain(name)) => Host::parse(name).unwrap_or(Host::Domain(name.to_owned())),
            Some(Host::Ipv4(address)) => Host::Ipv4(address),
            Some(Host::Ipv6(address)) => Host::Ipv6(address),
            None => Host::Domain(String::new()),
        };
        let plain = canonical_host(&host);
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exact(own), _) => *own == plain,
            (Self::Labels { strict, loose }, Host::Domain(_)) => {
                let labels: Vec<&str> = plain.split('.').collect();
                match is_strict {
                    Strictness::Strict => strict.matches(&labels),
                    Strictness::Loose => loose.matches(&labels),
                }
            }
            (Self::Labels { .. }, Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }
}

/// The parts of a URL as written.
struct RawUrl<'v> {
    host: &'v str,
    path: &'v str,
}

impl<'v> RawUrl<'v> {
    /// `None` if it is incomplete or has a user name.
    fn new(value: &'v str) -> Option<Self> {
        let (scheme, rest) = value.split_once("://")?;
        if scheme.contains(['/', '?', '#', '@']) {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains('@') || (authority.is_empty() && rest.starts_with("//")) {
            return None;
        }
        let after_brackets = authority.rfind(']').unwrap_or(0);
        let colon = authority.rfind(':').filter(|at| *at >= after_brackets);
        let host = authority.get(..colon.unwrap_or(authority.len()))?;
        let path = rest.get(..rest.find(['?', '#']).unwrap_or(rest.len()))?;
        Some(Self { host, path })
    }
}

/// Whether every server reads a path segment in the same way.
fn is_plain_segment(segment: &str) -> bool {
    let decoded = decode_percent(segment);
    let name = decoded.split(';').next().unwrap_or_default();
    let is_dots = matches!(name, "." | "..");
    !is_dots && !decoded.contains(['/', '\\', '%']) && !decoded.chars().any(char::is_control)
}

/// The segments of a path as the most lenient server reads them.
fn loose_segments(path: &str) -> Vec<String> {
    let path = decode_percent(path).replace('\\', "/");
    let mut segments: Vec<String> = Vec::new();
    for segment in path.split('/') {
        // Some servers treat the part after `;` as parameters.
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(fold_case(segment)),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_testkit::{Rng, check_property, one_in, pick};

    fn fit(pattern: &str, value: &str) -> MatchResult {
        UrlPattern::new(pattern).unwrap().match_value(value)
    }

    #[test]
    fn a_url_is_matched_part_by_part() {
        for (pattern, value) in [
            ("https://*.example.com/**", "https://www.example.com/"),
            ("https://*.example.com/**", "https://www.example.com/a/b?c=d#e"),
            ("https://*.example.com/**", "HTTPS://WWW.Example.COM:443/a"),
            ("https://*.example.com/**", "https://www.example.com./a"),
            ("https://**.example.com/**", "https://a.b.example.com/x"),
            ("https://example.com/a/*", "https://example.com/a/b"),
            ("https://example.com/a/*", "https://example.com/a/%62"),
            ("https://example.com/", "https://example.com"),
            ("https://example.com", "https://example.com/"),
            ("https://example.com:*/**", "https://example.com:8443/x"),
            ("https://example.com:8443/**", "https://example.com:8443/x"),
            ("http://127.0.0.1:*/**", "http://127.0.0.1:3000/x"),
            ("http://[::1]:3000/**", "http://[::1]:3000/x"),
            ("*://example.com/**", "ftp://example.com/x"),
            ("https://**/**", "https://anything.test/x"),
            ("https://example.com/find?q=*", "https://example.com/find?q=a"),
            ("file:///srv/**", "file:///srv/a"),
            ("https://b\u{fc}cher.example/**", "https://xn--bcher-kva.example/a"),
        ] {
            assert_eq!(fit(pattern, value), MatchResult::Yes, "{pattern} {value}");
        }
    }

    #[test]
    fn a_url_that_could_lead_elsewhere_is_not_a_certain_match() {
        for value in [
            "https://evil.test/.example.com/",
            "https://evil.test/x.example.com/a",
            "https://evil.test?.example.com/",
            "https://evil.test#.example.com/",
            "https://www.example.com@evil.test/",
            "https://user@www.example.com/",
            "https://user:pw@www.example.com/",
            "https://evil.test\\.example.com/",
            "https://www.example.com\\@evil.test/",
            "https:www.example.com/",
            "https:/www.example.com/",
            "https:///www.example.com/",
            "//www.example.com/",
            "www.example.com/",
            " https://www.example.com/",
            "https://www.exa\tmple.com/",
            "https://www.example.com/\n",
            "http://www.example.com/",
            "https://www.example.com:8443/",
            "https://example.com/",
            "https://a.b.example.com/",
            "https://www.example.com.evil.test/",
            "https://www.example.co/",
            "https://ww%77.example.com/",
            "https://www.ex\u{e4}mple.com/",
            "https://www.example.com/a/../b",
            "https://www.example.com/a/%2e%2e/b",
            "https://www.example.com/a/..;/b",
            "https://www.example.com/a//b",
            "https://www.example.com/a%2fb",
            "https://www.example.com/a%5cb",
            "https://www.example.com/%252e%252e/b",
            "https://www.example.com/%00",
            "javascript:alert(1)//www.example.com/",
            "data:text/html,https://www.example.com/",
            "",
            "https://",
            "https://[::1",
        ] {
            assert_ne!(fit("https://*.example.com/**", value), MatchResult::Yes, "{value}");
        }
        for (pattern, value) in [
            ("http://127.0.0.1/**", "http://0x7f.1/"),
            ("http://127.0.0.1/**", "http://2130706433/"),
            ("http://*.*.*.*/**", "http://127.0.0.1/"),
            ("https://example.com/a/*", "https://example.com/a/b/c"),
            ("https://example.com/a", "https://example.com/a?next=https://evil.test"),
            ("https://example.com/a", "https://example.com/b"),
            ("https://example.com/find?q=*", "https://example.com/find?q=a/b"),
        ] {
            assert_ne!(fit(pattern, value), MatchResult::Yes, "{pattern} {value}");
        }
    }

    #[test]
    fn another_spelling_of_a_url_is_never_certainly_another() {
        for (pattern, value) in [
            ("http://169.254.169.254/**", "http://169.254.169.254/latest"),
            ("http://169.254.169.254/**", "http://0xa9fea9fe/"),
            ("http://169.254.169.254/**", "http://2852039166/latest"),
            ("http://169.254.169.254/**", "http://0251.0376.0251.0376/"),
            ("http://169.254.169.254/**", "http://169.254.169.254.:80/"),
            ("http://169.254.169.254/**", "http://[::ffff:169.254.169.254]/"),
            ("http://169.254.169.254/**", "http://[::ffff:a9fe:a9fe]/"),
            ("http://169.254.169.254/**", "http://user@169.254.169.254/"),
            ("http://169.254.169.254/**", "http:169.254.169.254/"),
            ("http://169.254.169.254/**", "http://\u{ff11}69.254.169.254/"),
            ("http://169.254.169.254/**", "169.254.169.254/latest"),
            ("http://169.254.169.254/**", "http://169.254.169.254:8080/"),
            ("https://evil.test/**", "https://EVIL.test.:443//x"),
            ("https://evil.test/**", "https://evil\u{3002}test/"),
            ("https://*.evil.test/**", "https://a.b.evil.test/"),
            ("https://evil.test/admin/**", "https://evil.test/a/../admin/x"),
            ("https://evil.test/admin/**", "https://evil.test//admin//x"),
            ("https://evil.test/admin/**", "https://evil.test/%61dmin/x"),
            ("https://evil.test/admin/**", "https://evil.test/%2561dmin/x"),
            ("https://evil.test/admin/**", "https://evil.test/ADMIN/x"),
            ("https://evil.test/admin/**", "https://evil.test/admin"),
            ("https://evil.test/admin/**", "https://evil.test/x%2f..%2fadmin/y"),
            ("https://evil.test/admin/**", "https://evil.test/admin;a=b/y"),
            ("https://evil.test/admin/**", "https://evil.test\\admin\\y"),
            ("https://evil.test/admin", "https://evil.test/admin/?x=y"),
            ("https://evil.test/find?q=secret", "https://evil.test/find?q=%73ecret"),
        ] {
            assert_ne!(fit(pattern, value), MatchResult::No, "{pattern} {value}");
        }
        for value in [
            "https://good.test/",
            "https://good.test/evil.test/",
            "https://notevil.test/",
            "http://evil.test/",
            "https://user@good.test/",
        ] {
            assert_eq!(fit("https://evil.test/**", value), MatchResult::No, "{value}");
        }
    }

    /// Writes a URL in another way that leads to the same place.
    fn respelled(rng: &mut Rng, path: &[&str]) -> String {
        let any_case = |rng: &mut Rng, text: &str| -> String {
            let flip = |letter: char| {
                if rng.bool() { letter.to_ascii_uppercase() } else { letter }
            };
            text.chars().map(flip).collect()
        };
        let encoded = |rng: &mut Rng, text: &str| -> String {
            let spell = |byte: u8| match rng.usize(..4) {
                0 => format!("%{byte:02x}"),
                1 => format!("%{byte:02X}"),
                _ => char::from(byte).to_string(),
            };
            text.bytes().map(spell).collect()
        };
        let mut url = any_case(rng, "https");
        url.extend([*pick(rng, &["://", "://", ":/", ":", ":///"])]);
        url.extend([*pick(rng, &["", "", "user@", "user:pw@"])]);
        url.push_str(&any_case(rng, "evil.test"));
        url.extend([*pick(rng, &["", "."])]);
        url.extend([*pick(rng, &["", ":443", ":0443", ":"])]);
        for segment in path {
            url.extend([*pick(rng, &["/", "/", "//", "/./", "/x/../", "/%2e/", "/x/%2E%2e/"])]);
            url.push_str(&encoded(rng, segment));
        }
        if one_in(rng, 3) {
            url.push('/');
        }
        url.extend([*pick(rng, &["", "?a=b", "#c", "?a=b#c"])]);
        if one_in(rng, 8) {
            let at = rng.usize(..=url.len());
            url.insert(at, *pick(rng, &['\t', '\n']));
        }
        url
    }

    #[test]
    fn a_rule_against_a_url_holds_for_every_spelling_of_it() {
        check_property("a_rule_against_a_url_holds_for_every_spelling_of_it", 4_000, |rng| {
            let path = ["admin", "users", "7"];
            let path = &path[..rng.usize(1..=3)];
            let pattern = match rng.usize(..3) {
                0 => "https://evil.test/**".to_owned(),
                1 => format!("https://evil.test/{}", path.join("/")),
                _ => "https://*.test/admin/**".to_owned(),
            };
            let value = respelled(rng, path);
            assert_ne!(fit(&pattern, &value), MatchResult::No, "{pattern} {value}");
            // Whatever counts as certainly allowed is what the parser says it is.
            if fit(&pattern, &value) == MatchResult::Yes {
                let url = Url::parse(&value).unwrap();
                let host = url.host_str().unwrap().trim_end_matches('.').to_owned();
                assert_eq!((host.as_str(), url.port()), ("evil.test", None), "{value}");
                assert!(!value.contains("..") && !value.contains('@'), "{value}");
            }
        });
    }

    #[test]
    fn an_invalid_url_pattern_is_refused() {
        for pattern in [
            "",
            "example.com",
            "https:/example.com/",
            "https://user@example.com/",
            "https://example.com:x/",
            "https://example.com/a/../b",
            "https://example.com//a",
            "https://example.com/a#b",
            "https://exa mple.com/",
            "https://b\u{fc}cher.*/",
            "https://a**.example.com/",
            "://example.com/",
            "https://[::1/",
        ] {
            assert!(UrlPattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
