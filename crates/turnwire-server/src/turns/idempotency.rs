//! Idempotency: a repeated request returns the stored response.

use crate::auth::{Caller, hex, sha256};
use crate::error::{ApiError, ApiResult};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_log::store::IdempotencyRecord;
use turnwire_log::{Log, Session, Transaction};

/// The longest key.
const MAX_LENGTH: usize = 255;

/// Reads the header `Idempotency-Key`. An invalid key is refused before anything is stored for the
/// request.
pub(crate) fn read_header(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key =
        value.to_str().ok().map(str::trim).filter(|key| (1..=MAX_LENGTH).contains(&key.len()));
    key.map(Some).ok_or_else(|| {
        ApiError::bad_request("invalid Idempotency-Key: expected 1 to 255 visible ASCII characters")
            .hint("use a random UUID for each request, and the same one when you repeat it")
    })
}

/// An id that is the same whenever the same holder repeats a request: a hash of the holder and of
/// parts of the request, which include the key.
pub(crate) fn derived_id<const N: usize>(caller: &Caller, parts: [&[u8]; N]) -> String {
    let mut hashed = caller.0.holder.as_bytes().to_vec();
    for part in parts {
        hashed.push(0);
        hashed.extend_from_slice(part);
    }
    hex(&sha256(&hashed), 16)
}

/// Marks a response that was stored for an earlier request.
pub(crate) fn mark_replayed(response: &mut Response) {
    let replayed = HeaderName::from_static("idempotency-replayed");
    response.headers_mut().insert(replayed, HeaderValue::from_static("true"));
}

/// The idempotency key of a request, with a fingerprint of the request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdempotencyKey {
    tenant: Arc<str>,
    key: String,
    fingerprint: [u8; 32],
}

impl IdempotencyKey {
    /// Reads the key of a request, if it has one. It belongs to this incarnation of the session and
    /// to the holder of the caller's credentials: nobody else gets the stored response.
    pub fn from_request(
        session: &Session,
        caller: &Caller,
        headers: &HeaderMap,
        uri: &Uri,
        body: &[u8],
    ) -> ApiResult<Option<Self>> {
        let Some(key) = read_header(headers)? else { return Ok(None) };
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let mut what = Vec::with_capacity(path.len() + 1 + body.len());
        what.extend_from_slice(path.as_bytes());
        what.push(0);
        what.extend_from_slice(body);
        Ok(Some(Self {
            tenant: session.key().tenant.clone(),
            key: format!("{}/{}/{}/{key}", session.epoch(), caller.0.holder, uri.path()),
            fingerprint: sha256(&what),
        }))
    }

    /// The stored response to this request.
    pub async fn find_response<A: DeserializeOwned>(&self, log: &Log) -> ApiResult<Option<A>> {
        let earlier = log.find_idempotency_record(&self.tenant, &self.key).await?;
        earlier.as_ref().map(|earlier| self.read_response(earlier)).transpose()
    }

    /// The response that was stored a moment ago, and may not be durable yet.
    pub(super) fn find_response_in<A: DeserializeOwned>(
        &self,
        tx: &Transaction<'_>,
    ) -> ApiResult<Option<A>> {
        tx.find_answered(&self.key).map(|earlier| self.read_response(earlier)).transpose()
    }

    /// Stores the response, in the same change that it is about.
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
            .hint("use a new key for each request, and the same key only to repeat it"));
        }
        serde_json::from_str(&earlier.response).map_err(ApiError::internal)
    }
}
