//! Tests of whole stores: random histories, damage, killed processes, deposed leaders, and failing
//! folders.

mod damage;
mod folders;
mod followed;
mod histories;
mod killed;
mod refused;
mod refusing;
mod site;
mod snapshots;
mod steps;
