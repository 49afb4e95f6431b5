//! Topologies as users run them, on the threads of a node, or with several processes connected by
//! the test.

mod groupings;
mod guest;
mod halves;
mod in_process;
mod mistakes;
mod own_process;
mod parts;
mod process_files;
mod processes;
mod reliability;
mod turns;
mod windows;
mod yaml;
