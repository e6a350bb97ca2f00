// A sigmoid belief network in plain arithmetic: the same as `vimco.models`, for one image at a time.
//
//   P(x, h | c) = P(h¹ | c) P(h² | h¹) … P(x | hᴸ)      h¹ is the deepest layer; all units are 0 or 1
//
// The logits of a layer are affine in its parent. Random bits are those of `jax.random`: a key, the number of a sample
// and the position of a unit give the same bit here and in Python.

const ROTATIONS = [[13, 15, 26, 6], [17, 29, 16, 24]];

/** Two random words: the Threefry-2x32 cipher, 20 rounds (Salmon et al., 2011), of the counter (high, low). */
function threefry(key, high, low) {
  const keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda];
  high = (high + keys[0]) | 0;
  low = (low + keys[1]) | 0;
  for (let group = 0; group < 5; group++) {
    for (const rotation of ROTATIONS[group % 2]) {
      high = (high + low) | 0;
      low = high ^ ((low << rotation) | (low >>> (32 - rotation)));
    }
    high = (high + keys[(group + 1) % 3]) | 0;
    low = (low + keys[(group + 2) % 3] + group + 1) | 0;
  }
  return [high, low];
}

/** The key of a number, as `jax.random.fold_in` makes it. */
const foldIn = (key, number) => threefry(key, 0, number);

/** h ~ Bernoulli(σ(logits)) for one sample number: bit for bit `vimco.models.sample_bernoulli` for one example. */
function sampleBernoulli(key, number, logits) {
  return Uint8Array.from(logits, (a, i) => {
    const [first, second] = threefry(key, number, i);
    const bits = ((first >>> 9) & 0x7ffc00) | ((first & 31) << 5) | (second & 31);
    const u = (bits + 0.5) / 2 ** 23; // never 0 or 1
    const odds = Math.exp(-Math.abs(a)); // of the less likely value
    const isRare = u + u * odds < odds;
    return isRare !== a > 0 ? 1 : 0;
  });
}

/** log Π Bernoulli(v; σ(a)) = Σ v a − log(1 + exp a), written so that nothing overflows. */
function logBernoulli(values, logits) {
  let sum = 0;
  logits.forEach((a, i) => {
    sum += values[i] * a - Math.max(a, 0) - Math.log1p(Math.exp(-Math.abs(a)));
  });
  return sum;
}

/** logits += parent · weight, in place. */
function addProduct(logits, parent, { columns, values }) {
  for (let i = 0; i < parent.length; i++) {
    const scale = parent[i];
    if (scale === 0) continue;
    for (let j = 0, at = i * columns; j < columns; j++, at++) logits[j] += scale * values[at];
  }
  return logits;
}

const minus = (values, mean) => Float64Array.from(values, (value, i) => value - mean[i]);
const sigmoid = (a) => 1 / (1 + Math.exp(-a));

/** log 1/K Σ exp(log f): the bound L̂ of K samples (Eq. 4). */
function multiSampleBound(logWeights) {
  const largest = Math.max(...logWeights);
  return largest + Math.log(logWeights.reduce((sum, w) => sum + Math.exp(w - largest), 0) / logWeights.length);
}

/** The weights w̃ = f / Σ f. */
function normalizedWeights(logWeights) {
  const total = multiSampleBound(logWeights) + Math.log(logWeights.length);
  return logWeights.map((w) => Math.exp(w - total));
}

/** Layers of binary units, each the parent of the next: `vimco.models.Chain`. */
class Chain {
  constructor(layers, isSymmetric) {
    this.layers = layers; // each { weights: [one for each parent], bias }
    this.isSymmetric = isSymmetric; // children see −1 and +1 instead of 0 and 1
  }

  /** The logits from the data alone, computed once for all samples: `source` is for the first layer, `side` for the last. */
  inputs(source, side = null) {
    const [first, last] = [this.layers[0], this.layers.at(-1)];
    return {
      first: addProduct(first.bias.slice(), source, first.weights[0]),
      side: side && addProduct(new Float64Array(last.bias.length), side, last.weights[1]),
    };
  }

  recoded(latent) {
    return this.isSymmetric ? Float64Array.from(latent, (unit) => 2 * unit - 1) : latent;
  }

  logits(i, inputs, latents) {
    const layer = this.layers[i];
    const logits =
      i === 0 ? inputs.first.slice() : addProduct(layer.bias.slice(), this.recoded(latents[i - 1]), layer.weights[0]);
    if (inputs.side && i === this.layers.length - 1) inputs.side.forEach((value, j) => (logits[j] += value));
    return logits;
  }

  /** One latent vector for each layer, and the log-probability of the drawn ones; the first layers may be `given`. */
  sample(key, number, inputs, given = []) {
    const latents = [...given];
    let logProb = 0;
    for (let i = latents.length; i < this.layers.length; i++) {
      const logits = this.logits(i, inputs, latents);
      latents.push(sampleBernoulli(foldIn(key, i), number, logits));
      logProb += logBernoulli(latents[i], logits);
    }
    return { latents, logProb };
  }

  logProb(latents, inputs) {
    return latents.reduce((sum, latent, i) => sum + logBernoulli(latent, this.logits(i, inputs, latents)), 0);
  }
}

/** Model and proposal: `vimco.models.SigmoidBeliefNetwork`. */
class Network {
  constructor(header, arrays) {
    const layer = (name) => {
      const weights = [];
      while (`${name}.weights.${weights.length}` in arrays) weights.push(arrays[`${name}.weights.${weights.length}`]);
      return { weights, bias: Float64Array.from(arrays[`${name}.bias`].values) };
    };
    const chain = (name) => {
      const layers = [];
      while (`${name}.layers.${layers.length}.bias` in arrays) layers.push(layer(`${name}.layers.${layers.length}`));
      return layers.length ? new Chain(layers, header.symmetric) : null;
    };
    const [height, width] = header.shape;
    this.isStructured = header.task === "structured";
    this.middle = this.isStructured ? Math.floor(height / 2) * width : 0; // the pixels before it are the context
    this.prior = chain("prior");
    this.likelihood = layer("likelihood");
    this.proposal = chain("proposal.chain"); // null where the prior is the proposal
    this.centred = (values, name) => minus(values, arrays[`${name}.mean`].values);
  }

  /** An image as the chains see it: context and observation, centred by their training means. */
  given(image) {
    const [context, observation] = [image.slice(0, this.middle), image.slice(this.middle)];
    const given = { observation, prior: this.prior.inputs(this.centred(context, "centre_context")), proposal: null };
    if (this.proposal && this.isStructured) {
      const source = this.centred(context, "proposal.centre_context");
      given.proposal = this.proposal.inputs(source, this.centred(observation, "proposal.centre_observation"));
    } else if (this.proposal) {
      given.proposal = this.proposal.inputs(this.centred(observation, "proposal.centre"));
    }
    return given;
  }

  /** Sample `number` of h ~ P(h | c), deepest layer first; `fixed` are deepest layers that are not drawn. */
  priorSample(key, number, given, fixed = []) {
    return this.prior.sample(key, number, given.prior, fixed).latents;
  }

  /** Sample `number` of h ~ Q(h | x, c), with log P(x, h | c) and log Q(h | x, c). */
  importanceSample(key, number, given) {
    const drawn = (this.proposal ?? this.prior).sample(key, number, given.proposal ?? given.prior);
    const isUpward = this.proposal && !this.isStructured; // Q(h | x) runs from x to the deepest layer
    const latents = isUpward ? drawn.latents.reverse() : drawn.latents;
    const logPrior = this.proposal ? this.prior.logProb(latents, given.prior) : drawn.logProb;
    const logits = this.observationLogits(latents);
    const logJoint = logPrior + logBernoulli(given.observation, logits);
    return { latents, logits, logJoint, logProposal: drawn.logProb };
  }

  /** The logits of P(x | h). */
  observationLogits(latents) {
    const { weights, bias } = this.likelihood;
    return addProduct(bias.slice(), this.prior.recoded(latents.at(-1)), weights[0]);
  }
}

const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

/** The number that 16 bits stand for: sign, five bits of exponent, ten of fraction. */
function half(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
  return bits >> 15 ? -size : size;
}

/** The arrays by name, { rows, columns, values }: they lie one after the other, little-endian, row by row. */
function decodedArrays(header, base64) {
  const buffer = bytes(base64.trim()).buffer;
  const numbers =
    header.dtype === "float16" ? Float32Array.from(new Uint16Array(buffer), half) : new Float32Array(buffer);
  const arrays = {};
  let at = 0;
  for (const [name, shape] of header.arrays) {
    const length = shape.reduce((product, side) => product * side, 1);
    arrays[name] = { columns: shape.at(-1), values: numbers.subarray(at, (at += length)) };
  }
  return arrays;
}

/** The examples in the header, each an image of 0 and 1: eight pixels to a byte. */
function decodedExamples(header) {
  const size = header.shape[0] * header.shape[1];
  const stride = Math.ceil(size / 8);
  const packed = bytes(header.examples);
  return Array.from({ length: packed.length / stride }, (_, n) =>
    Uint8Array.from({ length: size }, (_, i) => (packed[n * stride + (i >> 3)] >> (7 - (i & 7))) & 1),
  );
}
