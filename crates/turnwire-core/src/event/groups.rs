//! Groups of event kinds. Whoever ignores or forwards whole groups names them in one `match` arm.

use super::EventKind;

/// A pattern for groups of [`EventKind`]s, and for single kinds by their names.
///
/// ```
/// use turnwire_core::{EventKind, event_kinds};
///
/// fn text_of<'k>(kind: &'k EventKind<'_>) -> &'k str {
///     match kind {
///         EventKind::TextBlockDelta(delta) => &delta.delta,
///         event_kinds!(
///             TextBlockStart TextBlockEnd Hint Block thinking data
///             reply model_call tool pending_call notice session
///         ) => "",
///     }
/// }
/// ```
///
/// | group | kinds |
/// |---|---|
/// | `reply` | start and end of a reply |
/// | `model_call` | start and end of a model call |
/// | `content` | `text`, `thinking`, `data`, `Hint`, `Block` |
/// | `text`, `thinking`, `data` | start, delta and end of such a block |
/// | `tool` | `tool_call`, `tool_result` |
/// | `tool_call`, `tool_result` | start, deltas and end |
/// | `pending_call` | requests for approvals and results, and the answers |
/// | `notice` | belong to a reply, but change nothing in its message: `java`, `ExceedMaxIters`, `UserInterrupt` |
/// | `java` | notices that only AgentScope for Java has |
/// | `session` | belong to no reply |
///
/// `reply model_call content tool pending_call notice session` are all kinds. A new kind is put into one
/// group here. A `match` that names the group handles it; one that names the single kinds of the group no longer
/// compiles. So name a group only if the new kind of it would belong into the same arm.
#[macro_export]
macro_rules! event_kinds {
    ($($name:ident)+) => { $crate::__event_kinds!([] $($name)+) };
}

// Replaces the groups by their kinds, one after the other; in brackets are the kinds so far.
#[doc(hidden)]
#[macro_export]
macro_rules! __event_kinds {
    ([$($kind:ident)*]) => { $($crate::EventKind::$kind(_))|* };
    ($done:tt reply $($more:ident)*) => {
        $crate::__event_kinds!($done ReplyStart ReplyEnd $($more)*)
    };
    ($done:tt model_call $($more:ident)*) => {
        $crate::__event_kinds!($done ModelCallStart ModelCallEnd $($more)*)
    };
    ($done:tt content $($more:ident)*) => {
        $crate::__event_kinds!($done text thinking data Hint Block $($more)*)
    };
    ($done:tt text $($more:ident)*) => {
        $crate::__event_kinds!($done TextBlockStart TextBlockDelta TextBlockEnd $($more)*)
    };
    ($done:tt thinking $($more:ident)*) => {
        $crate::__event_kinds!(
            $done ThinkingBlockStart ThinkingBlockDelta ThinkingBlockEnd $($more)*
        )
    };
    ($done:tt data $($more:ident)*) => {
        $crate::__event_kinds!($done DataBlockStart DataBlockDelta DataBlockEnd $($more)*)
    };
    ($done:tt tool $($more:ident)*) => {
        $crate::__event_kinds!($done tool_call tool_result $($more)*)
    };
    ($done:tt tool_call $($more:ident)*) => {
        $crate::__event_kinds!($done ToolCallStart ToolCallDelta ToolCallEnd $($more)*)
    };
    ($done:tt tool_result $($more:ident)*) => {
        $crate::__event_kinds!(
            $done ToolResultStart ToolResultTextDelta ToolResultDataDelta ToolResultEnd $($more)*
        )
    };
    ($done:tt pending_call $($more:ident)*) => {
        $crate::__event_kinds!(
            $done RequireUserConfirm RequireExternalExecution
            UserConfirmResult ExternalExecutionResult $($more)*
        )
    };
    ($done:tt notice $($more:ident)*) => {
        $crate::__event_kinds!($done java ExceedMaxIters UserInterrupt $($more)*)
    };
    ($done:tt java $($more:ident)*) => {
        $crate::__event_kinds!($done RequestStop AllToolsDenied SubagentExposed $($more)*)
    };
    ($done:tt session $($more:ident)*) => {
        $crate::__event_kinds!($done Custom Message Supersede Reset Unknown $($more)*)
    };
    ([$($done:ident)*] $kind:ident $($more:ident)*) => {
        $crate::__event_kinds!([$($done)* $kind] $($more)*)
    };
}

/// A kind without a group is a compile error here.
const _: fn(&EventKind<'_>) = |kind| match kind {
    event_kinds!(reply model_call content tool pending_call notice session) => {}
};
