#include "kernels.h"

/* (a * b * 2) >> 32, rounded to nearest. */
static int32_t high_mul(int32_t a, int32_t b) {
    int64_t product = (int64_t)a * b;
    if (a == b && a == INT32_MIN) {
        return INT32_MAX;
    }
    return (int32_t)((product + (product >= 0 ? 1 << 30 : 1 - (1 << 30))) / ((int64_t)1 << 31));
}

/* x / 2^bits, rounded to nearest, ties away from zero. */
static int32_t shift_right(int32_t x, int32_t bits) {
    int32_t mask = (int32_t)(((int64_t)1 << bits) - 1);
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0) ? 1 : 0);
}

static int32_t shift_left(int32_t x, int32_t bits) {
    int64_t wide = (int64_t)x * ((int64_t)1 << bits);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

static int32_t scaled(int32_t x, int32_t multiplier, int32_t shift) {
    return shift_right(high_mul((int32_t)((uint32_t)x << (shift > 0 ? shift : 0)), multiplier), shift > 0 ? 0 : -shift);
}

static int8_t clamped(int32_t x, int32_t low, int32_t high) {
    return (int8_t)(x < low ? low : x > high ? high : x);
}

static int8_t requantized(int32_t sum, const quantized_t *q, int32_t channel) {
    return clamped(scaled(sum, q->multiplier[channel], q->shift[channel]) + q->output_zero, q->low, q->high);
}

/* Weights: (output channel, row, column, input channel); depthwise: (row, column, channel). */
static void convolve(const window_t *w, const quantized_t *q, const int8_t *in, const int8_t *weights,
                     const int32_t *bias, int8_t *out, int is_depthwise) {
    int32_t depth = is_depthwise ? 1 : w->in_channels, times = w->out_channels / w->in_channels;
    for (int32_t y = 0; y < w->out_height; y++) {
        for (int32_t x = 0; x < w->out_width; x++) {
            for (int32_t c = 0; c < w->out_channels; c++) {
                int32_t sum = bias[c];
                for (int32_t v = 0; v < w->window_height; v++) {
                    for (int32_t u = 0; u < w->window_width; u++) {
                        int32_t row = y * w->stride_height - w->pad_top + v;
                        int32_t column = x * w->stride_width - w->pad_left + u;
                        if (row < 0 || row >= w->in_height || column < 0 || column >= w->in_width) {
                            continue;
                        }
                        const int8_t *pixel = in + (row * w->in_width + column) * w->in_channels;
                        int32_t at = v * w->window_width + u;
                        pixel += is_depthwise ? c / times : 0;
                        const int8_t *weight = is_depthwise
                            ? weights + at * w->out_channels + c
                            : weights + (c * w->window_height * w->window_width + at) * depth;
                        for (int32_t k = 0; k < depth; k++) {
                            sum += (pixel[k] - q->input_zero) * weight[k];
                        }
                    }
                }
                out[(y * w->out_width + x) * w->out_channels + c] = requantized(sum, q, c);
            }
        }
    }
}

void conv_2d(const window_t *w, const quantized_t *q, const int8_t *in, const int8_t *weights, const int32_t *bias,
             int8_t *out) {
    convolve(w, q, in, weights, bias, out, 0);
}

void depthwise_conv_2d(const window_t *w, const quantized_t *q, const int8_t *in, const int8_t *weights,
                       const int32_t *bias, int8_t *out) {
    convolve(w, q, in, weights, bias, out, 1);
}

void average_pool_2d(const window_t *w, int32_t low, int32_t high, const int8_t *in, int8_t *out) {
    for (int32_t y = 0; y < w->out_height; y++) {
        for (int32_t x = 0; x < w->out_width; x++) {
            for (int32_t c = 0; c < w->out_channels; c++) {
                int32_t sum = 0, count = 0;
                for (int32_t v = 0; v < w->window_height; v++) {
                    for (int32_t u = 0; u < w->window_width; u++) {
                        int32_t row = y * w->stride_height - w->pad_top + v;
                        int32_t column = x * w->stride_width - w->pad_left + u;
                        if (row >= 0 && row < w->in_height && column >= 0 && column < w->in_width) {
                            sum += in[(row * w->in_width + column) * w->in_channels + c];
                            count++;
                        }
                    }
                }
                sum += sum > 0 ? count / 2 : -(count / 2);
                out[(y * w->out_width + x) * w->out_channels + c] = clamped(sum / count, low, high);
            }
        }
    }
}

void fully_connected(int32_t inputs, int32_t outputs, const quantized_t *q, const int8_t *in, const int8_t *weights,
                     const int32_t *bias, int8_t *out) {
    for (int32_t c = 0; c < outputs; c++) {
        int32_t sum = bias[c];
        for (int32_t k = 0; k < inputs; k++) {
            sum += (in[k] - q->input_zero) * weights[c * inputs + k];
        }
        out[c] = requantized(sum, q, c);
    }
}

/* exp(x) of x <= 0 with 26 fractional bits; the result has 31 (gemmlowp's exp_on_negative_values). */
static int32_t exp_of(int32_t x) {
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24;
    int32_t part = (x & (quarter - 1)) - quarter, rest = part - x;
    int32_t a = shift_left(part, 5) + (1 << 28);
    int32_t a2 = high_mul(a, a), a3 = high_mul(a2, a), a4 = high_mul(a2, a2);
    int32_t series = shift_right(high_mul(shift_right(a4, 2) + a3, 715827883) + a2, 1);
    int32_t result = 1895147668 + high_mul(1895147668, a + series);
    for (int32_t k = 0; k < 7; k++) {
        if (rest & (1 << (24 + k))) {
            result = high_mul(result, factors[k]);
        }
    }
    return x == 0 ? INT32_MAX : result;
}

/* 1 / (1 + a) of a in [0, 1) with 31 fractional bits, by Newton's method. */
static int32_t reciprocal_of_one_plus(int32_t a) {
    int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + high_mul(half, -1010580540);
    for (int32_t k = 0; k < 3; k++) {
        x += shift_left(high_mul(x, (1 << 29) - high_mul(half, x)), 2);
    }
    return shift_left(x, 1);
}

void softmax(int32_t count, int32_t multiplier, int32_t shift, int32_t least, const int8_t *in, int8_t *out) {
    int32_t largest = INT8_MIN, sum = 0, zeros = 0;
    for (int32_t k = 0; k < count; k++) {
        largest = in[k] > largest ? in[k] : largest;
    }
    for (int32_t k = 0; k < count; k++) {
        int32_t below = in[k] - largest;
        if (below >= least) {
            sum += shift_right(exp_of(scaled(below, multiplier, shift)), 12);
        }
    }
    while (((uint32_t)sum << zeros) < 0x80000000u) {
        zeros++;
    }
    int32_t scale = reciprocal_of_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
    for (int32_t k = 0; k < count; k++) {
        int32_t below = in[k] - largest, value = 0;
        if (below >= least) {
            value = shift_right(high_mul(scale, exp_of(scaled(below, multiplier, shift))), 12 - zeros + 31 - 8);
        }
        out[k] = clamped(value + INT8_MIN, INT8_MIN, INT8_MAX);
    }
}
