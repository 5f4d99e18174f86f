/* Kernels of 8-bit TensorFlow Lite operators in plain C11, with the rounding of TensorFlow Lite Micro. */
#ifndef KERNELS_H
#define KERNELS_H

#include <stdint.h>

/* Quantization of a layer: one multiplier and shift per output channel. */
typedef struct {
    int32_t input_zero, output_zero, low, high;
    const int32_t *multiplier, *shift;
} quantized_t;

/* A window over an image of (height, width, channels). */
typedef struct {
    int32_t in_height, in_width, in_channels, out_height, out_width, out_channels;
    int32_t window_height, window_width, stride_height, stride_width, pad_top, pad_left;
} window_t;

void conv_2d(const window_t *w, const quantized_t *q, const int8_t *in, const int8_t *weights, const int32_t *bias,
             int8_t *out);
void depthwise_conv_2d(const window_t *w, const quantized_t *q, const int8_t *in, const int8_t *weights,
                       const int32_t *bias, int8_t *out);
void average_pool_2d(const window_t *w, int32_t low, int32_t high, const int8_t *in, int8_t *out);
void fully_connected(int32_t inputs, int32_t outputs, const quantized_t *q, const int8_t *in, const int8_t *weights,
                     const int32_t *bias, int8_t *out);
void softmax(int32_t count, int32_t multiplier, int32_t shift, int32_t least, const int8_t *in, int8_t *out);

#endif
