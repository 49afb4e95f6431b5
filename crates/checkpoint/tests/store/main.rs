//! Whole stores: random histories, damage, killed processes, those that are followed by others, and folders that refuse.

mod cuts;
mod damage;
mod folders;
mod followed;
mod histories;
mod killed;
mod refused;
mod refusing;
mod site;
mod steps;
