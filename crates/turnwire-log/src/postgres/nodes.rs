//! Nodes: the processes that use the database together, and what they share.
//!
//! A node is declared dead by an `UPDATE` of its row, which waits for a renewal that is under way and finds the lease valid
//! then. A renewal after it finds the row dead. So exactly one of the two happens.

use super::PostgresStore;
use super::sessions;
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::cluster::{ClusterStore, Node, NodeState, Renewed, SessionHead};
use crate::store::{Fence, SessionNumber, SessionRecord};
use async_trait::async_trait;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// A condition on `turnwire.sessions s`: its owner is no living node.
macro_rules! has_no_owner {
    () => {
        "NOT EXISTS (SELECT 1 FROM turnwire.nodes n WHERE n.id = s.owner AND NOT n.is_dead)"
    };
}
pub(super) use has_no_owner;

/// How long rows of dead nodes are kept, so that an operator finds them.
const KEEP_DEAD: &str = "interval '1 day'";

#[async_trait]
impl ClusterStore for PostgresStore {
    async fn join(&self, node: &Node, ttl: Duration) -> Result<()> {
        let json = sessions::to_json(node)?;
        let sql = format!(
            "WITH old AS (DELETE FROM turnwire.nodes WHERE is_dead AND expires_at < clock_timestamp() - {KEEP_DEAD})
             INSERT INTO turnwire.nodes (id, node, expires_at, is_dead)
             VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second', false)"
        );
        let params = [
            (&node.id as _, Type::TEXT),
            (&json as _, Type::TEXT),
            (&ttl.as_secs_f64() as _, Type::FLOAT8),
        ];
        let connection = self.database().connect_as_node().await?;
        let joined = connection.execute(&sql, &params).await;
        joined.map(drop).map_err(|error| self.database().explain(error))
    }

    async fn renew(&self, node: &str, ttl: Duration) -> Result<Renewed> {
        let renew =
            "UPDATE turnwire.nodes SET expires_at = clock_timestamp() + $2 * interval '1 second'
                     WHERE id = $1 AND NOT is_dead";
        let seconds = ttl.as_secs_f64();
        let params = [(&node as _, Type::TEXT), (&seconds as _, Type::FLOAT8)];
        let list = "SELECT node, expires_at < clock_timestamp(),
                           (extract(epoch FROM clock_timestamp()) * 1000)::int8
                    FROM turnwire.nodes WHERE NOT is_dead";
        let connection = self.database().connect_as_node().await?;
        let (renewed, listed) =
            tokio::join!(connection.execute(renew, &params), connection.query(list, &[]));
        let explain = |error| self.database().explain(error);
        if renewed.map_err(explain)? == 0 {
            return Err(Error::Fenced);
        }
        let read = |rows: Vec<Row>| {
            let mut renewed = Renewed { nodes: Vec::new(), now_ms: 0 };
            for row in &rows {
                let node = sessions::from_json(row.try_get(0)?)?;
                renewed.nodes.push(NodeState { node, has_expired: row.try_get(1)? });
                renewed.now_ms = row.try_get(2)?;
            }
            // This node is among them.
            Ok(renewed)
        };
        listed.and_then(read).map_err(explain)
    }

    async fn declare_dead(&self, node: &str) -> Result<bool> {
        let sql = "UPDATE turnwire.nodes SET is_dead = true
                   WHERE id = $1 AND (is_dead OR expires_at < clock_timestamp())";
        let connection = self.database().connect_as_node().await?;
        let updated = connection.execute(sql, &[(&node, Type::TEXT)]).await;
        updated.map(|rows| rows > 0).map_err(|error| self.database().explain(error))
    }

    async fn remove_node(&self, node: &str) -> Result<()> {
        let sql = "UPDATE turnwire.nodes SET is_dead = true WHERE id = $1";
        let connection = self.database().connect_as_node().await?;
        let updated = connection.execute(sql, &[(&node, Type::TEXT)]).await;
        updated.map(drop).map_err(|error| self.database().explain(error))
    }

    fn local_address(&self) -> Option<IpAddr> {
        // Connecting a datagram socket sends nothing; it only chooses the address.
        let address = self.database().host().and_then(|(host, port)| {
            let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
            socket.connect((host, port)).ok()?;
            Some(socket.local_addr().ok()?.ip())
        });
        address.filter(|address| !address.is_loopback() && !address.is_unspecified())
    }

    async fn secret(&self) -> Result<Vec<u8>> {
        let mut random = vec![0; 32];
        getrandom::fill(&mut random).map_err(|error| {
            Error::Store(format!("the system returned no random numbers: {error}"))
        })?;
        let sql = "WITH new AS (
                       INSERT INTO turnwire.cluster (one, secret) VALUES (true, $1) ON CONFLICT DO NOTHING RETURNING secret)
                   SELECT secret FROM new UNION ALL SELECT secret FROM turnwire.cluster";
        let connection = self.database().connect_as_node().await?;
        // A secret that another node stores at the same moment is visible to the next statement only.
        loop {
            let rows = connection.query(sql, &[(&random, Type::BYTEA)]).await;
            let rows = rows.map_err(|error| self.database().explain(error))?;
            if let Some(row) = rows.first() {
                let secret = row.try_get::<_, Vec<u8>>(0).map_err(Into::into);
                return secret.map_err(|error| self.database().explain(error));
            }
        }
    }

    async fn release_leases(&self, leases: &[(SessionNumber, Fence)]) -> Result<()> {
        let sessions: Vec<i64> = leases.iter().map(|(session, _)| session.0).collect();
        let fences: Vec<i64> =
            leases.iter().map(|(_, fence)| sessions::fence_to_sql(*fence)).collect();
        let sql = "UPDATE turnwire.sessions s SET owner = NULL, fence = s.fence + 1
                   FROM unnest($1, $2) v (no, fence) WHERE s.no = v.no AND s.fence = v.fence";
        let params = [(&sessions as _, Type::INT8_ARRAY), (&fences as _, Type::INT8_ARRAY)];
        let connection = self.database().connect_as_node().await?;
        let released = connection.execute(sql, &params).await;
        released.map(drop).map_err(|error| self.database().explain(error))
    }

    async fn list_heads(&self, sessions: &[SessionNumber]) -> Result<Vec<SessionHead>> {
        let numbers: Vec<i64> = sessions.iter().map(|session| session.0).collect();
        let sql = "SELECT no, head, status FROM turnwire.sessions WHERE no = ANY($1)";
        let connection = self.database().connect_as_node().await?;
        let rows = connection.query(sql, &[(&numbers, Type::INT8_ARRAY)]).await;
        let read = |row: &Row| {
            Ok(SessionHead {
                session: SessionNumber(row.try_get(0)?),
                head: sql_integers::head_from_sql(row.try_get(1)?),
                status: sessions::status_from_sql(row.try_get(2)?),
            })
        };
        rows.and_then(|rows| rows.iter().map(read).collect())
            .map_err(|error| self.database().explain(error))
    }

    async fn list_orphans(&self, after: SessionNumber, limit: usize) -> Result<Vec<SessionRecord>> {
        sessions::list_orphans(self.database(), after, limit).await
    }

    async fn claim_task(&self, task: &str, node: &str, ttl: Duration) -> Result<bool> {
        let sql = "INSERT INTO turnwire.tasks AS t (name, node, until)
                   VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')
                   ON CONFLICT (name) DO UPDATE SET node = excluded.node, until = excluded.until
                   WHERE t.node = excluded.node OR t.until < clock_timestamp()";
        let seconds = ttl.as_secs_f64();
        let params =
            [(&task as _, Type::TEXT), (&node as _, Type::TEXT), (&seconds as _, Type::FLOAT8)];
        let connection = self.database().connect_as_node().await?;
        let claimed = connection.execute(sql, &params).await;
        claimed.map(|rows| rows > 0).map_err(|error| self.database().explain(error))
    }

    async fn put_once(&self, key: &str, value: &str, ttl: Duration, max: usize) -> Result<bool> {
        let sql = "WITH old AS (DELETE FROM turnwire.once WHERE until < clock_timestamp())
                   INSERT INTO turnwire.once (key, value, until)
                   SELECT $1, $2, clock_timestamp() + $3 * interval '1 second'
                   WHERE (SELECT count(*) FROM turnwire.once WHERE until >= clock_timestamp()) < $4";
        let (seconds, max) = (ttl.as_secs_f64(), sql_integers::count_to_sql(max));
        let params = [
            (&key as _, Type::TEXT),
            (&value as _, Type::TEXT),
            (&seconds as _, Type::FLOAT8),
            (&max as _, Type::INT8),
        ];
        let connection = self.database().connect_as_node().await?;
        let stored = connection.execute(sql, &params).await;
        stored.map(|rows| rows > 0).map_err(|error| self.database().explain(error))
    }

    async fn take_once(&self, key: &str) -> Result<Option<String>> {
        let sql =
            "DELETE FROM turnwire.once WHERE key = $1 RETURNING value, until > clock_timestamp()";
        let connection = self.database().connect_as_node().await?;
        let rows = connection.query(sql, &[(&key, Type::TEXT)]).await;
        let read = |rows: Vec<Row>| {
            let Some(row) = rows.first() else { return Ok(None) };
            let is_valid: bool = row.try_get(1)?;
            Ok(is_valid.then_some(row.try_get(0)?))
        };
        rows.and_then(read).map_err(|error| self.database().explain(error))
    }
}
