/** Functions that want to know. */

/** A set of listeners. One that throws does not keep the others from hearing. */
export class Listeners<A extends readonly unknown[] = []> {
  readonly #all = new Set<(...args: A) => void>();

  /** Adds a listener, and returns the function that removes it. */
  add(listener: (...args: A) => void): () => void {
    // A wrapper, so that the same function may be added twice and removed once.
    const own = (...args: A): void => listener(...args);
    this.#all.add(own);
    return () => void this.#all.delete(own);
  }

  /** The number of listeners. */
  get size(): number {
    return this.#all.size;
  }

  /** Calls all listeners. */
  tell(...args: A): void {
    for (const listener of [...this.#all]) {
      try {
        listener(...args);
      } catch (error) {
        // As for a DOM event: the error is the listener's, and is reported where the environment reports such.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
