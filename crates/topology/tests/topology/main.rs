//! Topologies as their users see them, run on the threads of a node.

mod groupings;
mod mistakes;
mod parts;
mod reliability;
mod windows;
mod yaml;
