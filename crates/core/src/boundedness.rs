//! Boundedness of streams as a type parameter.

/// A type that marks a stream as bounded or unbounded.
pub trait Boundedness: Send + Sync + 'static {
    /// True if the stream ends by itself.
    const ENDS: bool;
}

/// The trait bound for streams that end; only [`Bounded`] implements it.
#[diagnostic::on_unimplemented(
    message = "this needs a stream that ends, and the stream here has no end",
    label = "an endless stream never gets there",
    note = "split it into windows first: `.key_by(..).window(..)`, or read from a source that ends"
)]
pub trait Ends: Boundedness {}

impl Ends for Bounded {}

/// The marker of a stream that ends by itself, such as a file. Only such a stream can be sorted, or
/// be the build side of a join.
#[derive(Clone, Copy, Debug)]
pub struct Bounded;

/// The marker of a stream without an end, such as a socket.
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
    /// The boundedness of the result.
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
