//! Mail between the instances of different containers: the job's side channels, carried.
//!
//! For each other container there are two tasklets, a job of their own on the same threads: one collects what was posted here for
//! instances there and sends it over a stream, which all side channels share; one delivers what comes from there.

mod carrier;
mod deliverer;
mod directory;
mod letters;
mod post_office;

pub(crate) use letters::LettersCodec;
pub(crate) use post_office::PostOffice;
