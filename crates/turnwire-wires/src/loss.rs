//! What a wire cannot hold. The tests of law 6 read this table, and `turnwire wires` prints it.
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
    /// that structured output is no text: it is the text of a reply that has none
    StructuredText,
    /// thinking that its provider has not signed
    UnsignedThinking,
    /// ids of messages
    MessageIds,
    /// times, of messages and of blocks
    Times,
    /// who sent it
    Names,
    /// metadata of messages
    Metadata,
    /// fields that we do not know, of messages and of blocks (signatures apart)
    UnknownFields,
    /// messages of the role system
    SystemMessages,
    /// messages of the role tool: their results join the reply before them, or are one
    ToolMessages,
    /// messages without any content
    EmptyMessages,
    /// replies that follow each other without a user between: they are one
    AdjacentReplies,
    /// whether, and why, a reply ended
    Endings,
    /// the tokens that a reply took which has not ended yet
    UnfinishedUsage,
    /// that a reply has not ended yet: it comes out truncated
    Unfinished,
    /// why a reply ended, beyond what the protocol has words for
    FinishedReasons,
    /// why a reply ended, in a word that we do not know
    OtherReasons,
    /// what kind of error ended a reply
    ErrorTypes,
    /// the error that ended a reply
    Errors,
    /// structured output
    StructuredOutput,
    /// tokens taken
    Usage,
    /// that no tokens were counted: there are 0 of them
    NoUsage,
    /// tokens read from, or put into, a provider's cache
    CacheUsage,
    /// ids of text, thinking and data blocks
    BlockIds,
    /// text and thinking blocks without any text
    EmptyBlocks,
    /// where texts end and begin: between two results all text is one block, and so is all thinking
    JoinedText,
    /// where one text, or thinking, block ends and the next begins
    BlockBoundaries,
    /// blocks that grow at the same time: each is written whole, in the order of their starts
    Interleaving,
    /// that a text was replaced, or a block taken out again, after it was sent
    Corrections,
    /// the order of blocks between two model calls: thinking, text, then calls
    BlockOrder,
    /// thinking
    Thinking,
    /// text that holds `<think>` tags: it is thinking
    ThinkTags,
    /// what a provider added to thinking, such as its signature
    ThinkingExtras,
    /// hints
    Hints,
    /// data blocks
    Data,
    /// data blocks whose source is of a kind that we do not know
    OtherSources,
    /// data blocks that are no images, sound or films
    NotMedia,
    /// data other than images whose bytes are here
    ImagesOnly,
    /// data that is neither an image nor a document, or not within reach of the provider
    OtherMedia,
    /// names of data blocks, or the older form that they had
    DataNames,
    /// what kind of bytes a data block has, where that is not said
    MediaTypes,
    /// blocks of a type that we do not know
    OtherBlocks,
    /// tool calls
    ToolCalls,
    /// calls that the agent served itself
    ServedCalls,
    /// how far a tool call has come
    CallStates,
    /// rules that a person may accept along with a call
    SuggestedRules,
    /// no input at all of a tool call: it is `{}`
    EmptyInput,
    /// the input of a tool call as the model wrote it: it is read, and written anew
    InputText,
    /// results of tools
    ToolResults,
    /// the names of tools in results
    ResultNames,
    /// how a result failed: interrupted and denied are errors, a running one is none
    ResultStates,
    /// the state of a result altogether
    AllResultStates,
    /// metadata of results
    ResultMetadata,
    /// data in results
    ResultData,
    /// the parts of a result: its text is one
    ResultParts,
    /// the text of a result beyond 500 characters
    LongResults,
    /// replies of sub-agents as messages of their own
    SubAgents,
    /// where calls stand: they come behind everything else
    CallOrder,
    /// that a reply with calls to be executed has completed: it ends with `tool_calls`
    OpenCalls,
}
