//! What a wire cannot hold. The tests of law 6 read these lists, and `turnwire wires` prints them.
//!
//! ```
//! use turnwire_wires::Wire;
//!
//! for wire in Wire::all() {
//!     for loss in wire.stream_losses {
//!         println!("{}: {}", wire.name, loss.about());
//!     }
//! }
//! ```

macro_rules! losses {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Something that a wire cannot hold: it is missing, or different, on the other side.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Loss {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Loss {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What is lost, in a line.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii_start(),)+
                }
            }
        }
    };
}

losses! {
    /// that structured output is not text: a reply without text gets it as its text
    StructuredText,
    /// thinking without its provider's signature
    UnsignedThinking,
    /// message ids
    MessageIds,
    /// timestamps of messages and blocks
    Times,
    /// the sender's name
    Names,
    /// message metadata
    Metadata,
    /// unknown fields of messages and blocks, except signatures
    UnknownFields,
    /// system messages
    SystemMessages,
    /// messages of the role `tool`: their results join the previous reply, or form one
    ToolMessages,
    /// messages without content
    EmptyMessages,
    /// boundaries between consecutive replies: they are merged
    AdjacentReplies,
    /// whether and why a reply ended
    Endings,
    /// token usage of a reply that has not ended
    UnfinishedUsage,
    /// that a reply has not ended: it reads as truncated
    Unfinished,
    /// finish reasons that the protocol does not have
    FinishedReasons,
    /// unknown finish reasons
    OtherReasons,
    /// the type of the error that ended a reply
    ErrorTypes,
    /// the error that ended a reply
    Errors,
    /// structured output
    StructuredOutput,
    /// structured output of failed replies
    FailedStructuredOutput,
    /// token usage
    Usage,
    /// missing token usage: it reads as 0
    NoUsage,
    /// whether a provider's input tokens include those of its cache: they do
    InputTokens,
    /// ids of text, thinking and data blocks
    BlockIds,
    /// empty text and thinking blocks
    EmptyBlocks,
    /// boundaries of text and thinking blocks: all text between two results becomes one block, and all thinking
    JoinedText,
    /// boundaries between consecutive text or thinking blocks
    BlockBoundaries,
    /// interleaved blocks: each is written as a whole, in order of their starts
    Interleaving,
    /// that sent text was replaced, or a sent block discarded
    Corrections,
    /// ids and positions of texts that were replaced, and positions of calls whose input was edited: they are written again
    RewrittenBlocks,
    /// the order of blocks between two model calls: thinking, text, then tool calls
    BlockOrder,
    /// text with `<think>` tags: it becomes thinking
    ThinkTags,
    /// provider fields of thinking blocks, such as the signature
    ThinkingExtras,
    /// hints
    Hints,
    /// data blocks
    Data,
    /// data blocks with an unknown source type
    OtherSources,
    /// data blocks other than images, audio and video
    NotMedia,
    /// data other than inline images
    ImagesOnly,
    /// data other than images and documents, or out of the provider's reach
    OtherMedia,
    /// names of data blocks, and their older form
    DataNames,
    /// that a data block has no media type: it gets a default
    MediaTypes,
    /// blocks of unknown types
    OtherBlocks,
    /// tool calls that the agent executed itself
    ServedCalls,
    /// the state of a tool call
    CallStates,
    /// permission rules suggested with a tool call
    SuggestedRules,
    /// empty tool input: it becomes `{}`
    EmptyInput,
    /// the exact text of a tool input: it is parsed and serialized again
    InputText,
    /// tool input that is not JSON: it becomes a JSON string
    InvalidInput,
    /// tool results
    ToolResults,
    /// that a tool result has no call: it gets one
    ResultsWithoutCalls,
    /// that a call has no result when its reply ends: it may get one that says so
    CallsWithoutResults,
    /// tool names in results
    ResultNames,
    /// the position of tool results: each follows its call
    ResultPositions,
    /// result states: interrupted and denied become errors, running becomes success
    ResultStates,
    /// all result states
    AllResultStates,
    /// result metadata
    ResultMetadata,
    /// data in results
    ResultData,
    /// the output of failed results, except its text; if there is none, the state becomes the text
    FailedOutput,
    /// the output of denied results
    DeniedOutput,
    /// whether a result is text, or a list with one text or nothing
    SingleParts,
    /// the parts of a result: they are joined into one text
    ResultParts,
    /// parts of results that are neither text nor data, and the names, older forms and ids of data in results
    ResultPartDetails,
    /// result text beyond 500 characters
    LongResults,
    /// sub-agent replies as separate messages
    SubAgents,
    /// the position of tool calls: they come last
    CallOrder,
    /// that a reply with open tool calls completed: it ends with `tool_calls`
    OpenCalls,
}

/// A list of losses by their names: `loss_list! { Times, Names }`, or after a shared list: `loss_list! { SHARED; Times, Names }`.
macro_rules! loss_list {
    ($($name:ident),+ $(,)?) => {
        &[$($crate::Loss::$name),+]
    };
    ($shared:ident; $($name:ident),+ $(,)?) => {{
        const OWN: &[$crate::Loss] = &[$($crate::Loss::$name),+];
        const ALL: [$crate::Loss; $shared.len() + OWN.len()] = $crate::loss::join($shared, OWN);
        &ALL
    }};
}
pub(crate) use loss_list;

/// What messages of every model provider lose.
pub(crate) const PROVIDER_MESSAGES: &[Loss] = loss_list! {
    MessageIds, Times, Metadata, UnknownFields, ToolMessages, AdjacentReplies, Endings, Errors,
    StructuredOutput, Usage, BlockIds, Hints, OtherBlocks, CallStates, SuggestedRules,
    ResultMetadata,
};

/// What streams in the protocol of a model provider lose.
pub(crate) const PROVIDER_STREAMS: &[Loss] = loss_list! {
    Times, Names, Metadata, UnknownFields, Unfinished, NoUsage, Hints, OtherBlocks, ServedCalls,
    CallStates, SuggestedRules, ToolResults, SubAgents,
};

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
pub(crate) const fn join<const N: usize>(shared: &[Loss], own: &[Loss]) -> [Loss; N] {
    let mut all = [Loss::Times; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < shared.len() { shared[at] } else { own[at - shared.len()] };
        at += 1;
    }
    all
}
