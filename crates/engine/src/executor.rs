//! The threads of a node: the loop that runs their tasklets, and its parts.
//!
//! * `threads`: the threads of a node, and the placement of tasklets on them;
//! * `worker`: the loop; `worker_shared`: its state that other threads see, and wakers of tasklets;
//! * `parker`, `ready`, `timers`: the ready tasklets of a thread, and those that wait for a time;
//! * `cores`: affinity and priority.

pub(crate) mod cores;
pub(crate) mod parker;
pub(crate) mod ready;
pub(crate) mod threads;
mod timers;
pub(crate) mod worker;
pub(crate) mod worker_shared;
