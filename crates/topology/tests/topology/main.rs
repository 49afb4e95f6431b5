//! Topologies as their users see them, run on the threads of a node, or by hand where several processes are to be joined.

mod groupings;
mod halves;
mod mistakes;
mod parts;
mod processes;
mod reliability;
mod turns;
mod windows;
mod yaml;
