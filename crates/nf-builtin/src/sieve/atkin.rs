//! The sieve of Atkin (A. O. L. Atkin, D. J. Bernstein, "Prime sieves using binary quadratic forms",
//! Mathematics of Computation 73, 2004).
//!
//! A number without a square factor, other than 2 and 3, is prime if the number of its representations by the
//! quadratic form that belongs to its remainder modulo 12 is odd. So each representation flips a bit, and
//! multiples of the squares of primes are taken out at the end.

/// The largest number up to which primes are computed.
pub(super) const MOST: u32 = 100_000;
const WORDS: usize = MOST as usize / 64 + 1;

/// Room for the sieve: a bit for each number.
pub(crate) struct Primes(Box<[u64; WORDS]>);

impl Default for Primes {
    fn default() -> Primes {
        Primes(Box::new([0; WORDS]))
    }
}

impl Primes {
    /// Returns how many primes there are up to a number, which is at most [`MOST`].
    pub fn count(&mut self, up_to: u32) -> u32 {
        let up_to = up_to.min(MOST);
        self.0.fill(0);
        self.flip_representations(up_to);
        self.clear_squares(up_to);
        let small = [2, 3].into_iter().filter(|&prime| prime <= up_to).count() as u32;
        small + self.0.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    /// Flips the bit of each number of the right remainder once for each pair that represents it.
    fn flip_representations(&mut self, up_to: u32) {
        for x in (1..).take_while(|x| x * x <= up_to) {
            for y in (1..).take_while(|y| y * y <= 2 * up_to) {
                let (xx, yy) = (x * x, y * y);
                self.flip(4 * xx + yy, up_to, &[1, 5]);
                self.flip(3 * xx + yy, up_to, &[7]);
                if x > y {
                    self.flip(3 * xx - yy, up_to, &[11]);
                }
            }
        }
    }

    fn flip(&mut self, number: u32, up_to: u32, remainders: &[u32]) {
        if number <= up_to && remainders.contains(&(number % 12)) {
            let (word, bit) = place(number);
            if let Some(word) = self.0.get_mut(word) {
                *word ^= bit;
            }
        }
    }

    /// Takes out all numbers with the square of a prime among their factors.
    fn clear_squares(&mut self, up_to: u32) {
        for prime in (5..).take_while(|prime| prime * prime <= up_to) {
            if !self.has(prime) {
                continue;
            }
            let square = prime * prime;
            for number in (square..=up_to).step_by(square as usize) {
                let (word, bit) = place(number);
                if let Some(word) = self.0.get_mut(word) {
                    *word &= !bit;
                }
            }
        }
    }

    fn has(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// The word and the bit of a number.
fn place(number: u32) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of primes up to powers of ten (OEIS A006880).
    #[test]
    fn as_many_primes_as_are_known() {
        let mut primes = Primes::default();
        for (up_to, count) in [(10, 4), (100, 25), (1000, 168), (10_000, 1229), (100_000, 9592)] {
            assert_eq!(primes.count(up_to), count, "{up_to}");
        }
    }

    #[test]
    fn the_same_primes_as_by_division() {
        let (mut primes, mut count) = (Primes::default(), 0);
        for number in 1..3000 {
            let is_prime = number > 1 && (2..number).take_while(|d| d * d <= number).all(|d| number % d != 0);
            count += u32::from(is_prime);
            assert_eq!(primes.count(number), count, "{number}");
            assert_eq!(primes.has(number), is_prime && number > 3, "{number}");
        }
    }
}
