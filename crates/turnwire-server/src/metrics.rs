//! Metrics for Prometheus.
//!
//! The counters of all routes are created when the server starts: counting a request neither looks
//! anything up nor allocates.
//!
//! ```
//! use turnwire_server::metrics::Metrics;
//!
//! let metrics = Metrics::new();
//! metrics.events_stored.inc_by(3);
//! assert!(metrics.text().contains("turnwire_events_stored_total 3\n"));
//! ```

mod agents;

pub use agents::{AgentMetrics, RunningReply};

use crate::api;
use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::OnceLock;
use std::time::Duration;

/// All metrics.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    routes: Vec<RouteMetrics>,
    /// Requests that were refused before they were routed.
    unrouted: RouteMetrics,
    /// Events of producers that became durable.
    pub events_stored: Counter,
    /// Events that were in the log already.
    pub events_repeated: Counter,
    /// Events that did not fit.
    pub events_refused: Counter,
    /// Bytes sent, before TLS.
    pub bytes_sent: Counter,
    /// Open connections.
    pub connections: Gauge,
    /// Connections that were closed because the client was too slow.
    pub slow_clients: Counter,
    /// Metrics of agents.
    pub agents: AgentMetrics,
    streams: Family<StreamLabels, Gauge>,
    memory: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabels {
    wire: &'static str,
    transport: &'static str,
}

/// How a stream reaches its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Server-sent events.
    Sse,
    /// A WebSocket.
    WebSocket,
}

/// The statuses that have a counter of their own.
const STATUSES: [u16; 25] = [
    101, 200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 421,
    422, 429, 500, 501, 503, 507,
];

struct RouteMetrics {
    method: &'static str,
    route: &'static str,
    duration: Histogram,
    by_status: [OnceLock<Counter>; STATUSES.len()],
}

const BUCKETS: [f64; 12] =
    [0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

impl Metrics {
    /// Creates the metrics, all at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("turnwire");
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("http_requests", "HTTP requests with a response", requests.clone());
        let durations =
            Family::<RouteLabels, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register_with_unit(
            "http_request_duration",
            "Time from the headers of a request to the headers of its response",
            Unit::Seconds,
            durations.clone(),
        );
        let route = |method, route| RouteMetrics {
            method,
            route,
            duration: durations.get_or_create(&RouteLabels { method, route }).clone(),
            by_status: std::array::from_fn(|_| OnceLock::new()),
        };
        let routes =
            api::ROUTES.iter().map(|entry| route(entry.method.as_str(), entry.path)).collect();
        let nowhere = route("", "");
        let mut counter = |name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let events_stored =
            counter("events_stored", "Events of external producers that were stored");
        let events_repeated =
            counter("events_repeated", "Events of external producers that were already stored");
        let events_refused =
            counter("events_refused", "Events of external producers that were refused");
        let slow_clients =
            counter("slow_clients", "Connections closed because the client was too slow");
        let bytes_sent = counter("bytes_sent", "Bytes sent, before TLS");
        let connections = Gauge::default();
        registry.register("connections", "Connections that are open", connections.clone());
        let streams = Family::<StreamLabels, Gauge>::default();
        registry.register("streams", "Streams of events that are open", streams.clone());
        let agents = AgentMetrics::new(&mut registry);
        let memory = Gauge::default();
        registry.register_with_unit(
            "process_resident_memory",
            "Memory of this process",
            Unit::Bytes,
            memory.clone(),
        );
        Self {
            registry,
            requests,
            routes,
            unrouted: nowhere,
            events_stored,
            events_repeated,
            events_refused,
            bytes_sent,
            connections,
            slow_clients,
            agents,
            streams,
            memory,
        }
    }

    /// Counts the response of a route; `None` if no route was reached.
    pub(crate) fn count_response(&self, route: Option<usize>, status: StatusCode, took: Duration) {
        let route = route.and_then(|index| self.routes.get(index)).unwrap_or(&self.unrouted);
        route.duration.observe(took.as_secs_f64());
        let status = status.as_u16();
        let known = STATUSES.iter().position(|&known| known == status);
        let count = || {
            let labels = RequestLabels { method: route.method, route: route.route, status };
            self.requests.get_or_create(&labels).clone()
        };
        match known.and_then(|index| route.by_status.get(index)) {
            Some(counter) => counter.get_or_init(count).inc(),
            None => count().inc(),
        };
    }

    /// Counts a stream of a wire as open while the result lives.
    pub fn open_stream(&self, wire: &'static str, transport: Transport) -> OpenStream {
        let transport = match transport {
            Transport::Sse => "sse",
            Transport::WebSocket => "websocket",
        };
        let gauge = self.streams.get_or_create(&StreamLabels { wire, transport }).clone();
        gauge.inc();
        OpenStream(gauge)
    }

    /// All metrics in the text format of Prometheus.
    pub fn text(&self) -> String {
        if let Some(bytes) = resident_memory() {
            self.memory.set(bytes);
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// An open stream.
#[derive(Debug)]
pub struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The resident memory of this process in bytes, if the system tells it.
fn resident_memory() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status() {
        let metrics = Metrics::new();
        let route = api::ROUTES.iter().position(|route| route.path == "/healthz").unwrap();
        metrics.count_response(Some(route), StatusCode::OK, Duration::from_millis(1));
        metrics.count_response(Some(route), StatusCode::OK, Duration::from_millis(1));
        metrics.count_response(None, StatusCode::MISDIRECTED_REQUEST, Duration::ZERO);
        metrics.count_response(None, StatusCode::IM_A_TEAPOT, Duration::ZERO);
        let text = metrics.text();
        for line in [
            "turnwire_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"200\"} 2",
            "turnwire_http_requests_total{method=\"\",route=\"\",status=\"421\"} 1",
            "turnwire_http_requests_total{method=\"\",route=\"\",status=\"418\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_stream_counts_while_it_is_open() {
        let metrics = Metrics::new();
        let line = "turnwire_streams{wire=\"turnwire\",transport=\"sse\"}";
        let stream = metrics.open_stream("turnwire", Transport::Sse);
        assert!(metrics.text().contains(&format!("{line} 1")));
        drop(stream);
        assert!(metrics.text().contains(&format!("{line} 0")));
    }
}
