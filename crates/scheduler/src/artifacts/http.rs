//! The store that is reached by HTTP, and the server that other machines reach it at.
//!
//! A package is at `PATH/DIGEST.tar.zst`: `GET`, `HEAD`, `PUT`, `DELETE`; `GET PATH/` lists what there is, as JSON. A plain
//! web server over the directory of a [`DirectoryStore`](crate::artifacts::DirectoryStore) is a store to get packages from. A token
//! travels as `Authorization: Bearer TOKEN`; there is no encryption, so it says who may, and hides nothing from the network.

mod body;
mod client;
mod server;

pub use client::HttpStore;
pub use server::PackageServer;
