//! State that survives: what an instance hands over at the end of an epoch, and gets back when it is made anew.
//!
//! An **epoch** ends at a marker. A [`Cut`] is the state of one instance at the end of an epoch: a set of **entries**, each the name of a
//! state, a partition or none, the bytes of a key, and the bytes of a value or that there is none any more ([`StateEntry`]). An entry
//! with a partition goes to whoever owns that when the job is restored, with however many instances; one without goes to all
//! instances of the vertex.
//!
//! * [`StateChunk`]: entries in a buffer that is used again;
//! * [`CutWriter`]: what a processor writes its cut with, as many bytes at a time as it is allowed;
//! * [`CutDraft`], [`GoneKeys`], [`instance_state`]: for those whose cuts are small;
//! * [`Undecided`]: for those that wait for commits;
//! * [`RestoredState`]: what hands them back;
//! * [`StateCodec`]: how values become bytes, or an [`Integer`];
//! * [`Schema`], [`StateShape`]: what they look like, told beside them;
//! * [`LocalStore`]: where an instance puts what memory has no room for.
//!
//! How a processor is asked for all that is said at [`Processor`](crate::Processor).

mod codec;
mod cut;
mod draft;
mod entry;
pub mod instance_state;
mod integer;
mod local;
mod restored;
mod schema;
mod undecided;

pub use codec::StateCodec;
pub use cut::{Cut, CutWriter};
pub use draft::{CutDraft, GoneKeys};
pub use entry::{StateChunk, StateEntries, StateEntry};
pub use integer::{Integer, IntegerType};
pub use local::{LocalChange, LocalEntries, LocalPlace, LocalStore, LocalView};
pub use restored::{RestoredEntry, RestoredState};
pub use schema::{
    EnumSchema, FieldSchema, Schema, StateForm, StateShape, StructSchema, VariantSchema,
};
pub use undecided::Undecided;

/// What the names of states begin with that are the runtime's own; those of processors do not.
pub const RUNTIME_STATE: char = '@';
