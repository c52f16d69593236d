//! Paths from a variable to a part of it, used to look up size limits.
//!
//! v1.34 stores them in Go slices that share their arrays: a step appended to a path overwrites the step appended to
//! the same path before, as long as the array has capacity. So `x.a.all(y, x.b == y)` may be estimated as iterating
//! over `x.b`. This affects which rules are accepted, so paths share their steps here in the same cases.

use std::cell::RefCell;
use std::rc::Rc;

/// A path. The default path is empty.
#[derive(Clone, Default)]
pub(super) struct Route {
    array: Rc<RefCell<Vec<String>>>,
    length: usize,
    /// The capacity of the array, in steps.
    room: usize,
}

impl Route {
    /// Returns the path of a variable.
    pub(super) fn of(variable: &str) -> Self {
        Self::default().then(variable)
    }

    /// Returns the path with one more step.
    pub(super) fn then(&self, step: &str) -> Self {
        if self.length < self.room {
            let mut array = self.array.borrow_mut();
            match array.get_mut(self.length) {
                Some(taken) => *taken = step.to_owned(),
                None => array.push(step.to_owned()),
            }
            return Self { array: self.array.clone(), length: self.length + 1, room: self.room };
        }
        let mut array = self.steps();
        array.push(step.to_owned());
        let room = (self.room * 2).max(1);
        Self { array: Rc::new(RefCell::new(array)), length: self.length + 1, room }
    }

    pub(super) fn steps(&self) -> Vec<String> {
        self.array.borrow()[..self.length].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_overwrites_the_one_taken_before_where_there_is_room() {
        let three = Route::of("self").then("list").then("@items");
        let (first, second) = (three.then("a"), three.then("b"));
        assert_eq!(first.steps(), ["self", "list", "@items", "b"]);
        let (below_first, below_second) = (first.then("c"), second.then("d"));
        assert_eq!(below_first.steps(), ["self", "list", "@items", "b", "c"]);
        assert_eq!(below_second.steps(), ["self", "list", "@items", "b", "d"]);
        let two = Route::of("self").then("a");
        assert_eq!((two.then("b").steps()[2].as_str(), two.then("c").steps()[2].as_str()), ("b", "c"));
    }
}
