//! The number map, the ropes and whole connections against models in which every byte has a tag.

mod connection;
mod numbers;
mod rope;
mod usual;
