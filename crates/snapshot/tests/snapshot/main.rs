//! Whole stores: random histories, damage, killed processes, and folders that refuse.

mod cuts;
mod damage;
mod folders;
mod histories;
mod killed;
mod refused;
mod refusing;
mod site;
mod steps;
