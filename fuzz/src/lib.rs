//! What the fuzz targets share.
//!
//! | module | what is in it |
//! |---|---|
//! | [`cut`] | a body in pieces |
//! | [`script`] | bytes into a stream of events |

pub mod cut;
pub mod script;
