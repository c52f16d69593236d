//! Divides a total among classes in proportion to their targets, within each class's bounds.

/// A class that gets a part of the total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    pub target: f64,
    pub lower: f64,
    pub upper: f64,
}

/// Why there is no valid allocation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AllocationError {
    #[error(
        "class {class} has a lower bound of {lower}, a target of {target} and an upper bound of {upper}: they must ascend from zero"
    )]
    Order { class: usize, lower: f64, target: f64, upper: f64 },
    #[error("lower bounds sum to {sum}, which is higher than the required sum of {required}")]
    TooLow { sum: f64, required: f64 },
    #[error("upper bounds sum to {sum}, which is lower than the required sum of {required}")]
    TooHigh { sum: f64, required: f64 },
    #[error("the bounds leave no proportion that yields {required}")]
    NoSolution { required: f64 },
}

/// Smaller targets are raised to this, so that no proportion divides by zero.
const MIN_TARGET: f64 = 0.001;
const EPSILON: f64 = 0.000_000_1;

/// A class, with its bounds relative to its target.
struct Relative {
    target: f64,
    lower: f64,
    upper: f64,
}

/// Returns the allocations, which sum to `required`, and the proportion of the target that unbounded classes get.
///
/// Each allocation is that proportion of the target, clamped to the class's bounds.
pub fn allocate(required: u64, classes: &[Class]) -> Result<(Vec<f64>, f64), AllocationError> {
    let required = required as f64;
    let relatives = relatives(classes)?;
    let low: f64 = classes.iter().map(|class| class.lower).sum();
    let high: f64 = classes.iter().map(|class| class.upper).sum();
    if low - required > EPSILON {
        return Err(AllocationError::TooLow { sum: low, required });
    }
    if required - high > EPSILON {
        return Err(AllocationError::TooHigh { sum: high, required });
    }
    if required == 0.0 {
        return Ok((vec![0.0; classes.len()], 0.0));
    }
    let least_lower = relatives.iter().map(|class| class.lower).fold(f64::MAX, f64::min);
    if low - required > -EPSILON {
        return Ok((classes.iter().map(|class| class.lower).collect(), least_lower));
    }
    if required - high > -EPSILON {
        let most_upper = relatives.iter().map(|class| class.upper).fold(0.0, f64::max);
        return Ok((classes.iter().map(|class| class.upper).collect(), most_upper));
    }
    let fair = match unbounded(required, &relatives) {
        Some(fair) => fair,
        None => bounded(required, low, least_lower, &relatives)?,
    };
    let bound =
        |(class, relative): (&Class, &Relative)| class.lower.max(class.upper.min(fair * relative.target));
    Ok((classes.iter().zip(&relatives).map(bound).collect(), fair))
}

fn relatives(classes: &[Class]) -> Result<Vec<Relative>, AllocationError> {
    let relative = |(at, class): (usize, &Class)| {
        let Class { target, lower, upper } = *class;
        if !(lower >= 0.0 && target >= lower && upper >= lower) {
            return Err(AllocationError::Order { class: at, lower, target, upper });
        }
        let target = target.max(MIN_TARGET);
        Ok(Relative { target, lower: lower / target, upper: upper / target })
    };
    classes.iter().enumerate().map(relative).collect()
}

/// Returns the proportion, if no bound applies.
fn unbounded(required: f64, classes: &[Relative]) -> Option<f64> {
    let fair = required / classes.iter().map(|class| class.target).sum::<f64>();
    let fits = classes.iter().all(|class| class.lower <= fair && fair <= class.upper);
    fits.then_some(fair)
}

/// Raises the proportion from bound to bound until the allocations sum to `required`. A class grows from its lower
/// bound to its upper one.
fn bounded(required: f64, low: f64, least_lower: f64, classes: &[Relative]) -> Result<f64, AllocationError> {
    let mut bounds: Vec<(f64, f64)> = classes
        .iter()
        .flat_map(|class| [(class.lower, class.target), (class.upper, -class.target)])
        .collect();
    bounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut fair, mut sum, mut sensitive) = (least_lower, low, 0.0);
    let mut taking_part = 0i64;
    for (bound, change) in bounds {
        if bound > fair {
            if taking_part > 0 {
                let next = fair + (required - sum) / sensitive;
                if next <= bound {
                    return Ok(next);
                }
                sum += (bound - fair) * sensitive;
            }
            fair = bound;
            if sum >= required {
                return Ok(fair);
            }
        }
        sensitive += change;
        taking_part += if change > 0.0 { 1 } else { -1 };
    }
    Err(AllocationError::NoSolution { required })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(target: f64, lower: f64, upper: f64) -> Class {
        Class { target, lower, upper }
    }

    fn allocated(required: u64, classes: &[Class]) -> Vec<f64> {
        allocate(required, classes).unwrap().0
    }

    #[test]
    fn classes_share_by_target_within_their_bounds() {
        assert_eq!(allocated(10, &[class(1.0, 0.0, 20.0), class(4.0, 0.0, 20.0)]), [2.0, 8.0]);
        assert_eq!(allocated(10, &[class(1.0, 0.0, 20.0), class(4.0, 0.0, 5.0)]), [5.0, 5.0]);
        assert_eq!(allocated(10, &[class(5.0, 4.0, 20.0), class(45.0, 0.0, 20.0)]), [4.0, 6.0]);
        assert_eq!(allocated(0, &[class(0.0, 0.0, 2.0)]), [0.0]);
        assert_eq!(allocated(4, &[class(0.0, 0.0, 2.0), class(9.0, 0.0, 2.0)]), [2.0, 2.0]);
    }

    #[test]
    fn impossible_bounds_are_reported() {
        assert!(allocate(1, &[class(2.0, 2.0, 3.0)]).is_err());
        assert!(allocate(9, &[class(2.0, 2.0, 3.0)]).is_err());
        assert!(allocate(1, &[class(1.0, 2.0, 3.0)]).is_err());
        assert!(allocate(1, &[class(f64::NAN, 0.0, 3.0)]).is_err());
        assert!(allocate(1, &[]).is_err());
    }

    proptest! {
        #[test]
        fn allocations_sum_up_and_stay_within_bounds(
            classes in proptest::collection::vec((0.0f64..50.0, 0.0f64..50.0, 0.0f64..50.0), 1..9),
            part in 0.0f64..1.0,
        ) {
            let classes: Vec<Class> = classes
                .into_iter()
                .map(|(lower, more, most)| class(lower + more, lower, lower + most))
                .collect();
            let low: f64 = classes.iter().map(|class| class.lower).sum();
            let high: f64 = classes.iter().map(|class| class.upper).sum();
            let required = (low + (high - low) * part).floor() as u64;
            prop_assume!(required as f64 >= low);
            let (allocations, fair) = allocate(required, &classes).unwrap();
            let sum: f64 = allocations.iter().sum();
            prop_assert!((sum - required as f64).abs() < 0.001, "{sum} instead of {required}");
            for (allocated, class) in allocations.iter().zip(&classes) {
                prop_assert!(*allocated >= class.lower && *allocated <= class.upper);
                let wanted = fair * class.target.max(MIN_TARGET);
                let is_bound = *allocated == class.lower || *allocated == class.upper;
                prop_assert!(is_bound || (allocated - wanted).abs() < 0.001);
            }
        }
    }
}
