//! A request that was sent twice is done once: `Idempotency-Key`.

use crate::auth::{Caller, sha256};
use crate::error::{ApiError, ApiResult};
use http::{HeaderMap, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use turnwire_log::store::IdempotencyRecord;
use turnwire_log::{Log, Session, Transaction};

/// The longest key that is taken.
const MAX_LENGTH: usize = 255;

/// What a client calls its request, and what it asked for.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    tenant: Arc<str>,
    key: String,
    fingerprint: [u8; 32],
}

impl IdempotencyKey {
    /// The request's key, where it has one. It belongs to this incarnation of the session, and to the holder
    /// of the caller's credentials: nobody else is given the stored answer.
    pub fn from_request(
        session: &Session,
        caller: &Caller,
        headers: &HeaderMap,
        uri: &Uri,
        body: &[u8],
    ) -> ApiResult<Option<Self>> {
        let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
        let key =
            value.to_str().ok().map(str::trim).filter(|key| (1..=MAX_LENGTH).contains(&key.len()));
        let key = key.ok_or_else(|| {
            ApiError::bad_request("this Idempotency-Key is not 1 to 255 visible characters")
                .hint("use a random UUID for each request, and the same one when sending it again")
        })?;
        let asked = uri.path_and_query().map_or("", |asked| asked.as_str());
        let mut what = Vec::with_capacity(asked.len() + 1 + body.len());
        what.extend_from_slice(asked.as_bytes());
        what.push(0);
        what.extend_from_slice(body);
        Ok(Some(Self {
            tenant: session.key().tenant.clone(),
            key: format!("{}/{}/{}/{key}", session.epoch(), caller.0.holder, uri.path()),
            fingerprint: sha256(&what),
        }))
    }

    /// What was answered to this request before.
    pub async fn find_response<A: DeserializeOwned>(&self, log: &Log) -> ApiResult<Option<A>> {
        let earlier = log.find_idempotency_record(&self.tenant, &self.key).await?;
        earlier.as_ref().map(|earlier| self.read_response(earlier)).transpose()
    }

    /// What was answered to it a moment ago.
    pub(super) fn find_response_in<A: DeserializeOwned>(
        &self,
        tx: &Transaction<'_>,
    ) -> ApiResult<Option<A>> {
        tx.find_answered(&self.key).map(|earlier| self.read_response(earlier)).transpose()
    }

    /// Keeps the answer, with the change that it is about.
    pub(super) fn store_response(
        &self,
        tx: &mut Transaction<'_>,
        answer: &impl Serialize,
    ) -> ApiResult<()> {
        tx.set_idempotency_record(IdempotencyRecord {
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            fingerprint: self.fingerprint,
            response: serde_json::to_string(answer).map_err(ApiError::internal)?,
        });
        Ok(())
    }

    fn read_response<A: DeserializeOwned>(&self, earlier: &IdempotencyRecord) -> ApiResult<A> {
        if earlier.fingerprint != self.fingerprint {
            return Err(ApiError::unprocessable(
                "this Idempotency-Key was used for another request; nothing was stored",
            )
            .kind("idempotency_key_reused")
            .hint(
                "use a new key for each request; send the same request again with the same one",
            ));
        }
        serde_json::from_str(&earlier.response).map_err(ApiError::internal)
    }
}
