//! Whether a stream ends: known to the type system.

/// Whether a stream ends by itself.
pub trait Boundedness: Send + Sync + 'static {
    /// True if it does.
    const ENDS: bool;
}

/// A stream that is known to end: [`Bounded`] and nothing else.
#[diagnostic::on_unimplemented(
    message = "this needs a stream that ends, and the stream here has no end",
    label = "an endless stream never gets there",
    note = "cut it into windows first: `.key_by(..).window(..)`, or read from a source that ends"
)]
pub trait Ends: Boundedness {}

impl Ends for Bounded {}

/// A stream that ends by itself, like a file: it can be sorted, or be the table side of a join.
#[derive(Clone, Copy, Debug)]
pub struct Bounded;

/// A stream without an end, like a socket.
#[derive(Clone, Copy, Debug)]
pub struct Unbounded;

impl Boundedness for Bounded {
    const ENDS: bool = true;
}

impl Boundedness for Unbounded {
    const ENDS: bool = false;
}

/// The boundedness of two streams together: bounded only if both are.
pub trait Join<Other> {
    /// What comes of the two.
    type Out: Boundedness;
}

impl Join<Bounded> for Bounded {
    type Out = Bounded;
}
impl Join<Unbounded> for Bounded {
    type Out = Unbounded;
}
impl Join<Bounded> for Unbounded {
    type Out = Unbounded;
}
impl Join<Unbounded> for Unbounded {
    type Out = Unbounded;
}
