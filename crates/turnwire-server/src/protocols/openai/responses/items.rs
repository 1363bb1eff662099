//! Lists of items: the input of a response, and the items of a conversation.

use super::request::invalid_request;
use super::wire;
use crate::error::{ApiError, ApiResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnwire_core::{Fields, Msg};

/// The default and the largest page.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct ItemQuery {
    /// At most so many items: 1 to 100, by default 20.
    limit: Option<usize>,
    /// `asc` for the oldest item first; by default `desc`.
    order: Option<ItemOrder>,
    /// Only items after this one, in the order of the list.
    after: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ItemOrder {
    Asc,
    #[default]
    Desc,
}

/// A page of items.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ItemList {
    object: &'static str,
    data: Vec<Fields>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl ItemList {
    /// All of these items.
    pub(in super::super) fn whole(items: Vec<Fields>) -> Self {
        let (first_id, last_id) = (items.first().and_then(item_id), items.last().and_then(item_id));
        Self { object: "list", data: items, first_id, last_id, has_more: false }
    }
}

impl ItemQuery {
    /// The page of these items, which are the oldest first.
    pub(in super::super) fn page(&self, mut items: Vec<Fields>) -> ApiResult<ItemList> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(invalid_request(format!("`limit` must be 1 to {MAX_LIMIT}")));
        }
        if self.order.unwrap_or_default() == ItemOrder::Desc {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let at = items.iter().position(|item| item_id(item).as_deref() == Some(after));
            let at = at.ok_or_else(|| {
                invalid_request(format!("`after` is not the id of an item here: {after:?}"))
                    .hint("use `last_id` of the page before")
            })?;
            items.drain(..=at);
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        Ok(ItemList { has_more, ..ItemList::whole(items) })
    }
}

fn item_id(item: &Fields) -> Option<String> {
    item.get("id").ok().flatten()
}

/// A message as items. Each has an id that does not change.
pub(in super::super) fn message_items(msg: &Msg) -> ApiResult<Vec<Fields>> {
    let items = wire()?.encode_messages(std::slice::from_ref(msg)).map_err(ApiError::internal)?;
    let mut list = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let mut item: Fields = item.parse_as().map_err(ApiError::internal)?;
        let kind: Option<String> = item.get("type").ok().flatten();
        let prefix = match kind.as_deref().unwrap_or_default() {
            "message" => "msg",
            "reasoning" => "rs",
            "function_call" => "fc",
            "function_call_output" => "fco",
            _ => "item",
        };
        if item.raw("id").is_none() {
            let part = if at == 0 { String::new() } else { format!("_{at}") };
            item.insert("id", format!("{prefix}_{}{part}", msg.id()));
        }
        if item.raw("status").is_none() && prefix != "rs" {
            item.insert("status", "completed");
        }
        list.push(item);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<Fields> {
        let item = |at: usize| {
            let mut item = Fields::default();
            item.insert("id", format!("i{at}"));
            item
        };
        (0..count).map(item).collect()
    }

    fn ids(query: &ItemQuery, count: usize) -> (Vec<String>, bool) {
        let page = query.page(items(count)).unwrap();
        assert_eq!(page.first_id, page.data.first().and_then(item_id));
        assert_eq!(page.last_id, page.data.last().and_then(item_id));
        (page.data.iter().filter_map(item_id).collect(), page.has_more)
    }

    #[test]
    fn pages_follow_each_other_in_both_orders() {
        let query = ItemQuery { limit: Some(2), ..ItemQuery::default() };
        assert_eq!(ids(&query, 3), (vec!["i2".to_owned(), "i1".to_owned()], true));
        let query = ItemQuery { after: Some("i1".to_owned()), ..query };
        assert_eq!(ids(&query, 3), (vec!["i0".to_owned()], false));
        let query = ItemQuery { order: Some(ItemOrder::Asc), ..query };
        assert_eq!(ids(&query, 3), (vec!["i2".to_owned()], false));
        assert_eq!(ids(&ItemQuery::default(), 0), (vec![], false));
    }

    #[test]
    fn an_unknown_cursor_and_a_wrong_limit_are_refused() {
        for limit in [0, 101, usize::MAX] {
            let query = ItemQuery { limit: Some(limit), ..ItemQuery::default() };
            assert!(query.page(items(1)).is_err(), "{limit}");
        }
        let query = ItemQuery { after: Some("nobody".to_owned()), ..ItemQuery::default() };
        assert!(query.page(items(1)).is_err());
    }
}
