//! The package store over HTTP, and its server.
//!
//! The URL of a package is `PATH/DIGEST.tar.zst`, for the methods `GET`, `HEAD`, `PUT` and
//! `DELETE`; `GET PATH/` lists the packages as JSON. A plain web server for the directory of a
//! [`DirectoryStore`](crate::artifacts::DirectoryStore) is a read-only store. The token is sent as
//! `Authorization: Bearer TOKEN`. Connections are not encrypted, so the token can be read on the
//! network.

mod body;
mod client;
mod server;

pub use client::HttpStore;
pub use server::PackageServer;
