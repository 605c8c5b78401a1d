//! A sorted set that also counts its elements below a given one.
//!
//! The elements are in sorted runs of bounded length. With the tens of thousands of elements in a
//! queue there are some hundred runs, so iterating over their lengths costs less than the pointers
//! of a balanced tree.

/// Length above which a run is split.
const RUN_MAX: usize = 256;

/// The set. No run is empty; all elements of a run are below all of the next one.
#[derive(Debug)]
pub(super) struct OrderedRuns<T> {
    runs: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for OrderedRuns<T> {
    fn default() -> OrderedRuns<T> {
        OrderedRuns { runs: Vec::new(), len: 0 }
    }
}

impl<T: Ord> OrderedRuns<T> {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the run of an element, or where it would be inserted: the last run that begins at or
    /// below it.
    fn run_of(&self, element: &T) -> usize {
        let begins_below = |run: &Vec<T>| run.first().is_some_and(|first| first <= element);
        self.runs.partition_point(begins_below).saturating_sub(1)
    }

    /// Adds an element; does nothing if it exists already.
    pub(super) fn insert(&mut self, element: T) {
        let index = self.run_of(&element);
        let Some(run) = self.runs.get_mut(index) else {
            self.runs.push(vec![element]);
            self.len += 1;
            return;
        };
        let Err(place) = run.binary_search(&element) else {
            return;
        };
        run.insert(place, element);
        self.len += 1;
        if run.len() > RUN_MAX {
            // Most elements are added at the end: a full run there stays full, and the next one
            // begins.
            let is_last = index + 1 == self.runs.len();
            let keep = if is_last { RUN_MAX } else { RUN_MAX / 2 };
            let rest = self.runs.get_mut(index).map(|run| run.split_off(keep));
            self.runs.insert(index + 1, rest.unwrap_or_default());
        }
    }

    /// Removes an element; returns whether it existed.
    pub(super) fn remove(&mut self, element: &T) -> bool {
        let index = self.run_of(element);
        let Some(run) = self.runs.get_mut(index) else {
            return false;
        };
        let Ok(place) = run.binary_search(element) else {
            return false;
        };
        run.remove(place);
        self.forget(index);
        true
    }

    /// Removes the lowest element.
    pub(super) fn pop_first(&mut self) -> Option<T> {
        let run = self.runs.first_mut()?;
        let element = run.remove(0);
        self.forget(0);
        Some(element)
    }

    /// Accounts for an element removed from a run.
    fn forget(&mut self, index: usize) {
        self.len -= 1;
        if self.runs.get(index).is_some_and(Vec::is_empty) {
            self.runs.remove(index);
        }
    }

    /// Returns the number of elements below this one.
    pub(super) fn before(&self, element: &T) -> usize {
        let index = self.run_of(element);
        let whole: usize = self.runs.iter().take(index).map(Vec::len).sum();
        let part = self.runs.get(index).map_or(0, |run| run.partition_point(|it| it < element));
        whole + part
    }
}
