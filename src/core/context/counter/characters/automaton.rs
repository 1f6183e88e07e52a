//! The rules of runs as a finite automaton, so that a character costs only a few look-ups in small tables. Speed
//! matters because every text of a session is counted when the session is opened.
//!
//! A state is everything that determines the next price: the class of the last character and its position in the run.

use super::Class;
use crate::core::context::counter::mix::SCRIPTS;

const CLASSES: usize = Class::ALL.len();

/// States of a class: the first character of a run after a class that changes its price, then the positions from 1 on.
/// After the last position the price is constant; digits repeat positions 4 to 6.
const PLACES: usize = 9;

/// The state before the first character.
const START: usize = CLASSES * PLACES;

const _: () = {
    assert!(START <= u8::MAX as usize, "a state is a byte");
    let mut at = 0;
    while at < CLASSES {
        assert!((Class::ALL[at].weights().late_from as usize) < PLACES, "the last position has the lasting price");
        at += 1;
    }
};

/// The price of a character that leads to this state.
#[derive(Clone, Copy)]
struct State {
    /// The price in thousandths of a token.
    price: u16,
    /// The number of the script under which it is counted.
    script: u8,
}

static STATES: [State; START] = states();

/// The state that a character of a class leads to.
static NEXT: [[u8; CLASSES]; START + 1] = transitions();

/// The classes of ASCII characters.
static ASCII: [u8; 128] = {
    let mut classes = [0; 128];
    let mut byte = 0_u8;
    while byte < 128 {
        classes[byte as usize] = Class::of(byte as char) as u8;
        byte += 1;
    }
    classes
};

const fn states() -> [State; START] {
    let mut states = [State { price: 0, script: 0 }; START];
    let mut at = 0;
    while at < START {
        let class = Class::ALL[at / PLACES];
        let price = match (at % PLACES) as u16 {
            0 => match class {
                Class::LineEnd => class.first_after(Some(Class::Mark)),
                _ => class.first_after(Some(Class::Space)),
            },
            1 => class.first_after(None),
            place => class.further(place),
        };
        states[at] = State { price, script: class.script() as u8 };
        at += 1;
    }
    states
}

const fn transitions() -> [[u8; CLASSES]; START + 1] {
    let mut next = [[0; CLASSES]; START + 1];
    let mut from = 0;
    while from <= START {
        let mut at = 0;
        while at < CLASSES {
            next[from][at] = follow(from, at) as u8;
            at += 1;
        }
        from += 1;
    }
    next
}

/// Returns the state that a character of class number `at` leads to.
const fn follow(from: usize, at: usize) -> usize {
    let class = Class::ALL[at];
    let before = if from == START { None } else { Some(Class::ALL[from / PLACES]) };
    let place = match before {
        Some(before) if class.continues(before) => {
            let place = match from % PLACES {
                0 => 2,
                place => place + 1,
            };
            match class {
                // Position 7 costs what position 4 costs, and so on.
                Class::Digit if place == 7 => 4,
                _ if place == PLACES => PLACES - 1,
                _ => place,
            }
        }
        _ if class.first_after(before) == class.first_after(None) => 1,
        _ => 0,
    };
    at * PLACES + place
}

/// Returns the weight of a text by script, in thousandths of a token.
pub(super) fn by_script(text: &str) -> [u64; SCRIPTS] {
    let mut units = [0; SCRIPTS];
    let mut state = START;
    for c in text.chars() {
        let class = ASCII.get(c as usize).copied().unwrap_or_else(|| Class::of(c) as u8);
        state = usize::from(NEXT[state][usize::from(class)]);
        let State { price, script } = STATES[state];
        units[usize::from(script)] += u64::from(price);
    }
    units
}
